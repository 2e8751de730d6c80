"""An HTTP service of fitted models, and the ad lab, a page to try them in a browser.

`reclick serve MODEL` starts the service; `create_app` returns it as an ASGI application.
"""

from reclick.service.app import create_app
from reclick.service.hosting import HostedModel, ModelHost
from reclick.service.protection import ServiceLimits

__all__ = ["HostedModel", "ModelHost", "ServiceLimits", "create_app"]
