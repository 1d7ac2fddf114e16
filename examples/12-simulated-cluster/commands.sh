# Server, scheduler and controllers on a simulated clock: a day takes about a second.
python example.py
