"""Slates and prices from a click model: the best page of a query, and auctions for its slots.

The theory is in docs/explanation/auction.md.
"""

from reclick.auction.batch import rank_pages, run_auctions
from reclick.auction.mechanisms import MECHANISMS
from reclick.auction.ranking import BestPage, best_page
from reclick.auction.run import AuctionResult, Displacement, PriceReason, run_auction

__all__ = [
    "MECHANISMS",
    "AuctionResult",
    "BestPage",
    "Displacement",
    "PriceReason",
    "best_page",
    "rank_pages",
    "run_auction",
    "run_auctions",
]
