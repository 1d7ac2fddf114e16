"""The FGD experiment, whose engine is `engines.placement`: its published numbers and its page."""
