# A fleet in a program: loaded once, then updated claim by claim.
python example.py
