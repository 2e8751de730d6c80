"""The words of queries and ads, and functions that draw phrases from them.

In the word lists a phrase of several words has underscores; `simulate` writes them as spaces.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from reclick.data.batch import Int64

Texts = npt.NDArray[np.object_]


class TradeVocabulary(NamedTuple):
    """The phrases of queries and ads of one trade; every field is a list of phrases."""

    modifiers: str  # before the topic in a query, and in the title of an ad
    details: str  # after the topic: a city, a group of people, a material
    endings: str  # at the end of a query
    offers: str  # what an ad of this trade promises


TRADES = {
    "service": TradeVocabulary(
        modifiers="""
            emergency local licensed affordable trusted 24_hour weekend commercial residential
            certified experienced mobile professional reliable best cheap independent
        """,
        details="""
            boston chicago denver austin seattle portland atlanta dallas houston phoenix detroit
            memphis nashville tampa orlando miami oakland sacramento cleveland pittsburgh baltimore
            richmond charlotte raleigh omaha tulsa leeds bristol glasgow cardiff dublin toronto
            ottawa calgary sydney brisbane
        """,
        endings="""
            near_me open_now prices reviews free_quote same_day phone_number this_weekend
            hourly_rate emergency_callout
        """,
        offers="""
            bonded insured licensed_team free_quotes same_day_visits no_call_out_fee fixed_prices
            family_owned open_24/7 upfront_pricing background_checked senior_discount
            written_guarantee clean_work on_time_arrival 20_years_experience five_star_reviews
        """,
    ),
    "travel": TradeVocabulary(
        modifiers="""
            cheap last_minute luxury family direct budget all_inclusive romantic summer winter
            early_booking student business flexible best_value weekend
        """,
        details="""
            lisbon porto madrid seville barcelona rome venice milan athens santorini crete paris
            nice lyon berlin munich vienna prague budapest krakow istanbul antalya cairo marrakech
            dubai bangkok phuket bali tokyo kyoto hawaii cancun havana reykjavik oslo malta
        """,
        endings="""
            deals from_london from_new_york with_pool for_two in_may in_august next_week
            price_comparison half_board no_deposit
        """,
        offers="""
            no_booking_fees free_cancellation low_deposit price_match pay_later instant_confirmation
            hand_picked verified_reviews save_30% kids_stay_free flexible_dates 24/7_support
            book_online members_save_more best_price_promise transfers_included
        """,
    ),
    "shop": TradeVocabulary(
        modifiers="""
            cheap discount best new refurbished waterproof lightweight handmade organic vintage
            custom wholesale designer portable compact heavy_duty clearance
        """,
        details="""
            women men kids beginners small_rooms travel office outdoors gifts seniors teens home
            winter summer camping school weddings black white navy green oak leather cotton wool
            steel large petite
        """,
        endings="""
            sale online free_shipping reviews next_day_delivery on_credit coupon under_$50
            under_$100 in_stock size_guide
        """,
        offers="""
            free_shipping free_returns official_store 50%_off next_day_delivery low_prices
            new_season in_stock_now easy_returns 2_year_warranty buy_now_pay_later gift_wrapping
            price_match clearance_sale top_rated student_discount made_to_last
        """,
    ),
    "online": TradeVocabulary(
        modifiers="""
            cheap best instant low_cost online compare private flexible short_term no_fee secure
            simple fast trusted small_business affordable
        """,
        details="""
            students seniors families couples drivers teachers nurses veterans freelancers landlords
            contractors startups beginners graduates first_time_buyers expats farmers homeowners
            renters new_parents
        """,
        endings="""
            quotes calculator rates online_application no_credit_check reviews comparison near_me
            requirements free_trial customer_service
        """,
        offers="""
            free_quote apply_online instant_decision no_hidden_fees low_rates trusted_advice
            cancel_anytime official_site expert_help rated_excellent secure_form compare_plans
            start_today free_trial no_obligation clear_terms money_back_guarantee
        """,
    ),
}

TOPICS = {  # topic: its trade, and the words that ads use for it
    "plumber": ("service", "leaks drains pipes boilers taps toilets water_heaters blocked_sinks"),
    "electrician": ("service", "wiring sockets lighting fuse_boxes rewiring outlets safety_checks"),
    "locksmith": ("service", "locks keys doors lockouts safes car_keys deadbolts"),
    "roof repair": ("service", "shingles gutters flashing leaks slate tiles inspections"),
    "house cleaning": (
        "service",
        "kitchens bathrooms carpets windows deep_cleaning ovens spotless_rooms",
    ),
    "movers": ("service", "packing boxes vans storage pianos careful_crews long_distance"),
    "pest control": ("service", "ants termites mice wasps bed_bugs cockroaches inspections"),
    "dentist": ("service", "implants whitening braces checkups crowns gentle_care root_canals"),
    "divorce lawyer": ("service", "custody settlements mediation family_law advice court_hearings"),
    "tree removal": ("service", "stumps pruning branches storm_damage hedges arborists"),
    "dog groomer": ("service", "baths nail_trims haircuts puppies coats gentle_handling"),
    "garage door repair": ("service", "springs openers panels tracks remotes cables"),
    "flights": ("travel", "airlines fares departures return_tickets seats airports"),
    "hotels": ("travel", "rooms suites breakfast city_centre spa sea_views"),
    "car hire": ("travel", "vans automatics airport_pickup unlimited_mileage suvs insurance"),
    "holiday villas": ("travel", "private_pools terraces beaches gardens sleeps_eight kitchens"),
    "cruises": ("travel", "cabins decks ports balcony_rooms islands dining"),
    "ski holidays": ("travel", "chalets lift_passes lessons slopes snow apres_ski"),
    "train tickets": ("travel", "first_class railcards night_trains seats timetables routes"),
    "travel insurance": (
        "travel",
        "medical_cover lost_luggage delays annual_policies claims families",
    ),
    "running shoes": ("shop", "trainers cushioning trail marathon soles arch_support"),
    "office chairs": ("shop", "ergonomic mesh lumbar_support armrests desks swivel"),
    "coffee machine": ("shop", "espresso beans grinders milk_frother capsules filters"),
    "laptops": ("shop", "notebooks screens battery_life memory gaming graphics"),
    "mattress": ("shop", "memory_foam springs king_size pillows firm_support toppers"),
    "bicycles": ("shop", "mountain_bikes frames gears helmets electric brakes"),
    "winter coats": ("shop", "down_jackets parkas hoods linings gloves warm"),
    "garden furniture": ("shop", "benches rattan parasols tables cushions patio"),
    "wedding rings": ("shop", "gold platinum diamonds bands engraving settings"),
    "cat food": ("shop", "grain_free kittens salmon pouches treats vet_approved"),
    "power tools": ("shop", "drills sanders saws cordless batteries workshops"),
    "contact lenses": (
        "shop",
        "daily_lenses monthly_lenses solutions astigmatism eye_tests coloured",
    ),
    "car insurance": ("online", "cover policies claims no_claims_bonus breakdown drivers"),
    "personal loan": ("online", "borrow repayments interest lenders credit_score approval"),
    "mortgage": ("online", "fixed_rate lenders remortgage deposits brokers repayments"),
    "credit card": ("online", "cashback balance_transfer rewards points spending limits"),
    "language course": ("online", "spanish lessons tutors grammar conversation certificates"),
    "web hosting": ("online", "domains servers email wordpress uptime backups"),
    "accounting software": ("online", "invoices payroll tax_returns bookkeeping expenses reports"),
    "online degree": ("online", "masters bachelors campus tuition scholarships accredited"),
    "broadband": ("online", "fibre router speeds landline unlimited_data contracts"),
    "energy supplier": ("online", "gas electricity tariffs green_power bills switching"),
}

BRAND_STARTS = """
    harbor maple summit river cedar bright silver north swift clear golden stone blue amber willow
    iron copper lark falcon orchard meadow pioneer anchor beacon crest delta ember fox granite hazel
    ivory juniper kestrel linden marble noble olive pearl quarry raven sable tidal umber velvet
    windmill yarrow zephyr alder birch coral
"""
BRAND_ENDS = """
    line works point house bridge field way gate mark hub craft link port path wise side nest yard
    spot trust ly mate direct stop street corner
"""
CALLS_TO_ACTION = """
    call_now book_today see_prices get_a_quote order_online learn_more find_yours shop_now visit_us
    compare_now ask_an_expert start_here
"""
OPENINGS = (
    "for_your the_right all_about here_for helping_with experts_in choose_from specialists_in"
)

TOPIC_NAMES: Texts = np.array(list(TOPICS), object)  # [topic]


def phrases(text: str) -> list[str]:
    """The phrases of a word list.

    >>> phrases("near_me open_now")
    ['near me', 'open now']
    """
    return [phrase.replace("_", " ") for phrase in text.split()]


def trade_phrases(field: str) -> list[list[str]]:
    """For each topic, its trade's phrases in `field`: modifiers, details, endings or offers."""
    return [phrases(getattr(TRADES[trade], field)) for trade, _ in TOPICS.values()]


def topic_nouns() -> list[list[str]]:
    """For each topic, the words that ads use for it."""
    return [phrases(words) for _, words in TOPICS.values()]


def brand_names() -> Texts:
    """All brands; brand b belongs to topic b % topics, where it is number b // topics.

    >>> brand_names()[:2].tolist()
    ['harborline', 'mapleworks']
    """
    starts, ends = phrases(BRAND_STARTS), phrases(BRAND_ENDS)
    combinations = (
        (start, (start + shift) % len(ends))
        for shift in range(len(ends))
        for start in range(len(starts))
    )  # neighbours differ in both parts
    return np.array([starts[start] + ends[end] for start, end in combinations], object)


def brands_per_topic() -> int:
    """The number of brands of every topic.

    >>> brands_per_topic()
    30
    """
    return len(brand_names()) // len(TOPIC_NAMES)


def brand_of_topic(topic: Int64, brand: Int64) -> Texts:
    """The names of brands by topic and number within the topic; empty for number −1."""
    names = np.append(brand_names(), "")
    brands: Texts = names[np.where(brand < 0, -1, brand * len(TOPIC_NAMES) + topic)]
    return brands


def take_phrases(lists: list[list[str]], which: Int64, number: Int64) -> Texts:
    """Take phrase `number` of list `which`, element by element; −1 is the empty phrase.

    >>> take_phrases([["a", "b"], ["c"]], np.array([0, 1, 1]), np.array([1, 0, -1])).tolist()
    ['b', 'c', '']
    """
    flat = np.array(["", *chain.from_iterable(lists)], object)
    starts = 1 + np.cumsum([0, *map(len, lists)])[which]
    texts: Texts = flat[np.where(number < 0, 0, starts + number)]
    return texts


def draw_two_phrases(
    lists: list[list[str]], which: Int64, rng: np.random.Generator
) -> tuple[Texts, Texts]:
    """Draw two different phrases of list `which`, for each element of `which`."""
    sizes = np.array([*map(len, lists)])[which]
    first = rng.integers(0, sizes)
    second = (first + rng.integers(1, sizes)) % sizes
    return take_phrases(lists, which, first), take_phrases(lists, which, second)
