# Server, scheduler and controllers on a simulated clock: a day passes in a moment.
python example.py
