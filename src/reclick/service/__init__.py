"""A fitted model behind an address: an HTTP service and the ad lab, a page to try it in a browser.

`reclick serve MODEL` starts it; `create_app` is the same as an ASGI application.
"""

from reclick.service.app import create_app
from reclick.service.hosting import HostedModel, ModelHost
from reclick.service.protection import ServiceLimits

__all__ = ["HostedModel", "ModelHost", "ServiceLimits", "create_app"]
