"""Click sequences of one page under sequential choice: the kernels. reclick.clicks.distribution runs them over many pages.

State: k clicks so far, the last at position l (0 = start), some positions clicked. The next click is at free position j with
P(j) = go · w_j / (outside + Σ w), w_j = θ_j γ_lj over free j; the rest ends the session. A reading says what "go" and "outside" are.

The parameters of a page, in this order everywhere:
    reading  a code of reclick.clicks.choice
    theta    [position] attractiveness;  rho  [position] satisfaction
    stop     [clicks so far] fatigue η, or the outside weight ω of "luce"; for WALK the chances of a step forward and of one back;
             for CHAIN P(end) after each last click, 0 = start
    gamma    [last, position] where the eye goes; row 0 is the start; γ_ll is any finite number, never used
The page's length is len(theta): stop and gamma may be longer, what lies beyond the page is not read.
Positions are from 1 in clicks and sequences, and index j - 1 in arrays. Clicks must be on the page: the caller has checked.
"""
