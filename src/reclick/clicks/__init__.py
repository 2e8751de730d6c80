"""Distributions over the click sequences of a page.

State of a session: k clicks so far, the last at position l (0 = start), some positions clicked.
Each family defines the next click: `choice` (attractiveness times transition), `chain` (down the
page), `walk` (step by step to neighbouring positions), `scan` (in either direction), `enumerated`
(every sequence of a short page), `mixture` (a mixture of them), `noise` (with random clicks).
`distribution` defines the methods that all of them have. Positions count from 1 in clicks and
sequences; position j has index j − 1 in arrays.
"""
