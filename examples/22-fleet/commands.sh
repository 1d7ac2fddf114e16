# A fleet in a program: loaded once, then changed claim by claim.
python example.py
