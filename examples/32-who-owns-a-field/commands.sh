# Two users apply to one object; the server tracks who owns which field.
python example.py
