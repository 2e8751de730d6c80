"""Metrics of the service, for Prometheus: no label contains a query or an ad."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from reclick.service.hosting import ModelHost

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Measures:
    """The metrics of one service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests answered.", "route", "status")
        self._pages = self._counter("pages", "Pages answered.", "model")
        self._unknown_queries = self._counter(
            "unknown_queries", "Pages whose query the model does not know.", "model"
        )
        self._unknown_ads = self._counter(
            "unknown_ads", "Impressions of ads that the model does not know.", "model"
        )
        self._seconds = Histogram(
            "reclick_request_seconds",
            "Time to answer a request.",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._version = self._gauge("model_info", "The model in place.", "model", "version", "type")
        self._age = self._gauge(
            "model_age_seconds", "Time since it was fitted or updated.", "model"
        )
        self._loaded = self._gauge("model_loaded_seconds", "Time since it was loaded.", "model")
        self._reloads = self._gauge("model_reloads", "Times it was replaced.", "model")
        self._failures = self._gauge(
            "model_reload_failures", "Times its folder could not be loaded.", "model"
        )

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"reclick_{name}", help, labels, registry=self.registry)

    def _gauge(self, name: str, help: str, *labels: str) -> Gauge:
        return Gauge(f"reclick_{name}", help, labels, registry=self.registry)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_pages(self, model: str, pages: int, unknown_queries: int, unknown_ads: int) -> None:
        """Count the pages of an answer, and its unknown queries and ads."""
        self._pages.labels(model).inc(pages)
        if unknown_queries:
            self._unknown_queries.labels(model).inc(unknown_queries)
        if unknown_ads:
            self._unknown_ads.labels(model).inc(unknown_ads)

    def exposition(self, host: ModelHost) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        self._version.clear()
        self._age.clear()
        now = time.time()
        for name, folder in host.folders.items():
            if folder.current is not None:
                hosted = folder.current
                self._version.labels(name, hosted.version, hosted.model.name).set(1)
                self._loaded.labels(name).set(now - hosted.loaded_at)
                if hosted.fitted_at is not None:
                    self._age.labels(name).set(now - hosted.fitted_at)
            self._reloads.labels(name).set(folder.reloads)
            self._failures.labels(name).set(folder.failures)
        return generate_latest(self.registry)
