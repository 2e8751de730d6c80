"""The fields of requests and answers, with their types and examples."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from reclick.evaluation.monitoring import MonitorLimits

Text = Annotated[str, Field(min_length=1, max_length=16_384)]
Position = Annotated[int, Field(ge=1, le=1_000_000)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(ge=0, le=1)]
IntervalLevel = Annotated[
    float, Field(gt=0.001, lt=0.999, description="The share inside each interval.")
]
LIMITS = MonitorLimits()


class RequestBody(BaseModel):
    """A request. Unknown fields and values of the wrong type are errors."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AdText(RequestBody):
    """The text of an ad. It is used if the model does not know the ad."""

    ad: Text
    title: str = ""
    description: str = ""
    display_url: str = ""


class PageBody(RequestBody):
    """A query and the ads shown for it, from the top; `clicks` are the positions clicked so far."""

    query: Text
    ads: list[Text] = Field(min_length=1)
    clicks: list[Position] = []


class ModelRequest(RequestBody):
    """A request to one of the models."""

    model: str | None = Field(None, description="A name from GET /v1/models; else the default.")
    text: list[AdText] = Field([], description="The text of ads that the model does not know.")

    def list_queries(self) -> list[str]:
        """Return the queries of the request."""
        parts = [
            *getattr(self, "pages", ()),
            *getattr(self, "pairs", ()),
            *getattr(self, "old", ()),
        ]
        query = getattr(self, "query", None)
        return [part.query for part in parts] if query is None else [query]


class PredictRequest(ModelRequest):
    """Pages to predict the clicks of."""

    pages: list[PageBody] = Field(min_length=1)
    top: int = Field(3, ge=0, le=100, description="How many of the likeliest sequences to list.")

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "pages": [{"query": "running shoes", "ads": ["a1", "a2"], "clicks": [1]}],
                "text": [{"ad": "a2", "title": "Trail running shoes", "display_url": "shoes.test"}],
                "top": 3,
            }
        }
    )


class Pair(RequestBody):
    """A query and an ad."""

    query: Text
    ad: Text


class RelevanceRequest(ModelRequest):
    """Pairs to estimate, or a query, for the ads that were shown for it."""

    pairs: list[Pair] = []
    query: Text | None = Field(
        None,
        description="In place of pairs: its ads with most impressions, as many as a request may "
        "have pairs.",
    )
    level: IntervalLevel = 0.9

    model_config = ConfigDict(
        json_schema_extra={"example": {"query": "running shoes", "level": 0.9}}
    )


class ExplainRequest(ModelRequest):
    """A pair whose attractiveness is to be explained."""

    query: Text
    ad: Text

    model_config = ConfigDict(json_schema_extra={"example": {"query": "running shoes", "ad": "a1"}})


class RankRequest(ModelRequest):
    """Candidates for a page, and the objective that the best page maximises."""

    query: Text
    ads: list[Text] = Field(min_length=1)
    slots: int = Field(4, ge=1, le=20)
    objective: Literal["clicks", "satisfaction", "value"] = "clicks"
    value: dict[str, Amount] = Field({}, description="With objective value: per click on each ad.")

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"query": "running shoes", "ads": ["a1", "a2", "a3"], "slots": 2}
        }
    )


class AuctionRequest(ModelRequest):
    """Bids per click for the slots of a page."""

    query: Text
    bids: dict[str, Amount] = Field(min_length=1)
    slots: int = Field(4, ge=1, le=20)
    mechanism: Literal["vcg", "gsp_model", "gsp", "first_price"] = "vcg"
    reserve: Amount = 0.0
    satisfaction_weight: Amount = 0.0

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "query": "running shoes",
                "bids": {"a1": 0.8, "a2": 1.2},
                "mechanism": "vcg",
                "reserve": 0.05,
            }
        }
    )


class CompareRequest(ModelRequest):
    """Two rankings of the same queries: what a change would bring."""

    old: list[PageBody] = Field(min_length=1)
    new: list[PageBody] = Field(min_length=1)
    level: IntervalLevel = 0.9

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "old": [{"query": "running shoes", "ads": ["a1", "a2"]}],
                "new": [{"query": "running shoes", "ads": ["a2", "a1"]}],
            }
        }
    )


class LimitsBody(RequestBody):
    """Above which differences a day breaks a limit."""

    clicks: Amount = Field(
        default=LIMITS.clicks, description="Expected against observed clicks, relative."
    )
    group: Amount = Field(
        default=LIMITS.group, description="The same for a position or query volume."
    )
    calibration: Amount = Field(default=LIMITS.calibration, description="The calibration error.")
    unknown_queries: Amount = Field(
        default=LIMITS.unknown_queries, description="Share of the sessions."
    )
    unknown_ads: Amount = Field(default=LIMITS.unknown_ads, description="Share of the impressions.")


class MonitorRequest(ModelRequest):
    """The sessions of a day, with their clicks."""

    pages: list[PageBody] = Field(min_length=1)
    limits: LimitsBody = LimitsBody()

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "pages": [{"query": "running shoes", "ads": ["a1", "a2"], "clicks": [1]}],
                "limits": {"clicks": 0.05},
            }
        }
    )


# parameters of the address, with a stream


class RelevanceParameters(RequestBody):
    """Options of a stream of pairs."""

    model: str | None = None
    level: IntervalLevel = 0.9


class MonitorParameters(LimitsBody):
    """Options of a stream of sessions."""

    model: str | None = None


# answers


class ModelAnswer(BaseModel):
    """An answer, with the name and the version of the model that made it."""

    model: str
    version: str


class ClickSequence(BaseModel):
    """A click sequence and its probability."""

    clicks: list[int]
    probability: float


class PagePrediction(BaseModel):
    """The prediction for a page; `next_click_prob` and `end_prob` are given the clicks so far."""

    click_prob: list[float]
    expected_clicks: float
    next_click_prob: list[float]
    end_prob: float
    sequences: list[ClickSequence]
    satisfaction_prob: float | None = Field(description="None: the model has no satisfaction.")


class PredictAnswer(ModelAnswer):
    """A prediction per page, in the order of the request."""

    pages: list[PagePrediction]


class PairEstimate(BaseModel):
    """Estimates of a pair, with intervals, and the impressions and clicks behind them."""

    model_config = ConfigDict(extra="allow")

    query: str
    ad: str
    attractiveness: float | None
    relevance: float | None
    impressions: float
    clicks: float
    words: str | None = Field(None, description="The words of the ad, where the model has text.")


class RelevanceAnswer(ModelAnswer):
    """An estimate per pair."""

    pairs: list[PairEstimate]


class WordFactor(BaseModel):
    """A word of the ad, and the factor by which it changes the attractiveness of a new ad."""

    word: str
    factor: float


class EvidenceLevel(BaseModel):
    """The attractiveness from a part of the evidence."""

    level: str
    attractiveness: float


class ExplainAnswer(ModelAnswer):
    """The evidence, the prior and the words behind an attractiveness."""

    query: str
    ad: str
    attractiveness: float
    low: float
    high: float
    impressions: float
    clicks: float
    known_query: bool
    known_ad: bool
    levels: list[EvidenceLevel]
    words: list[WordFactor]


class RankAnswer(ModelAnswer):
    """The best page, from the top."""

    query: str
    ads: list[str]
    expected_clicks: list[float]
    value: float = Field(description="Of the objective.")
    exact: bool


class DisplacedClicks(BaseModel):
    """Clicks that another ad would have if this one bid only the reserve, and their value."""

    ad: str
    clicks: float
    value: float


class AuctionSlot(BaseModel):
    """A slot of the page: who has it, what a click costs, and whose clicks that pays for.

    With vcg, price × expected clicks = `at_reserve` + the values of `displaced` + `satisfaction`.
    """

    ad: str
    price_per_click: float
    expected_clicks: float
    why: str
    because: Literal["displaced clicks", "threshold", "next rank", "reserve", "bid"]
    at_reserve: float = Field(description="What it would pay if it bid only the reserve.")
    displaced: list[DisplacedClicks]
    satisfaction: float = Field(description="Value of the satisfied sessions that it displaces.")


class AuctionAnswer(ModelAnswer):
    """The page and the prices."""

    query: str
    mechanism: str
    slots: list[AuctionSlot]
    revenue: float
    welfare: float
    satisfaction: float | None
    exact: bool
    excluded: dict[str, str] = Field(description="Ads that took no part, and why.")


class Comparison(BaseModel):
    """A quantity of the old and the new ranking, per page, and its change with an interval."""

    quantity: str
    old: float
    new: float
    change: float
    low: float
    high: float


class CompareAnswer(ModelAnswer):
    """The old and the new ranking compared."""

    comparisons: list[Comparison]
    covers: str = Field(description="What the intervals cover.")


class QueryMatch(BaseModel):
    """A query of the training log and its sessions."""

    query: str
    sessions: float


class QueriesAnswer(ModelAnswer):
    """Queries that begin with a prefix, those with most sessions first."""

    queries: list[QueryMatch]


class ModelDescription(BaseModel):
    """A model that is served."""

    model_config = ConfigDict(extra="allow")

    name: str
    version: str
    type: str
    default: bool


class ModelsAnswer(BaseModel):
    """The models that are served."""

    models: list[ModelDescription]


class MonitorAnswer(ModelAnswer):
    """How well a day's clicks agree with the model."""

    model_config = ConfigDict(extra="allow")

    ok: bool
    breaches: list[str]
    sessions: float
    observed_clicks: float
    expected_clicks: float


class Health(BaseModel):
    """Whether the service can answer."""

    status: str
    models: dict[str, str] = {}


class Problem(BaseModel):
    """An error: a code for programs, and a message that says what to do."""

    error: str
    message: str
