"""Converts classes, claims, pools and pods between generations of the device API.

What carries meaning over is translated; what does not is named precisely, with a suggestion.
Readers turn a generation into the neutral values of `neutral`, writers turn those into objects;
`expressions` translates CEL. Choosing devices is left to the generations themselves.
"""
