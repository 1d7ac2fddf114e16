"""Classes, claims, pools and pods from one generation of the device API in another.

What carries meaning over is translated; what does not is named precisely, with a suggestion.
Readers turn a generation into the neutral values of `neutral`, writers turn those into objects;
`expressions` translates CEL. Choosing devices is left to the generations themselves.
"""
