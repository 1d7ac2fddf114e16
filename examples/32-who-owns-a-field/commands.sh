# Two people apply to one object; the server knows who owns what.
python example.py
