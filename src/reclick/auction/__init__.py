"""Slates and prices from a click model: the best page of a query, and auctions for its slots.

The theory is in docs/explanation/auction.md.
"""

from reclick.auction.batch import rank_pages, run_auctions
from reclick.auction.comparison import MechanismComparison, compare_mechanisms, sample_bids
from reclick.auction.incentives import incentive_report
from reclick.auction.market_weeks import AuctionSimulation, simulate_auctions
from reclick.auction.mechanisms import MECHANISMS
from reclick.auction.ranking import BestPage, best_page
from reclick.auction.run import AuctionResult, Displacement, PriceReason, run_auction
from reclick.auction.uncertainty import AuctionUncertainty, price_intervals
from reclick.fitting.posterior import Interval

__all__ = [
    "MECHANISMS",
    "AuctionResult",
    "AuctionSimulation",
    "AuctionUncertainty",
    "BestPage",
    "Displacement",
    "Interval",
    "MechanismComparison",
    "PriceReason",
    "best_page",
    "compare_mechanisms",
    "incentive_report",
    "price_intervals",
    "rank_pages",
    "run_auction",
    "run_auctions",
    "sample_bids",
    "simulate_auctions",
]
