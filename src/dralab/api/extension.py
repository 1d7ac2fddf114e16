"""Fields that standard kinds have beyond Kubernetes' own, for as long as this process runs.

An older device API put `deviceClaims` into core/v1 pods. Whoever serves it says so once, before the
first object is decoded; decoders and schemas that were made before are forgotten.
"""

from collections.abc import Mapping
from typing import Any

from dralab.api import decoding
from dralab.api.schemas import Schemas


def extend(definition: str, properties: Mapping[str, Mapping[str, Any]]) -> None:
    """Give a definition such as `io.k8s.api.core.v1.PodSpec` more fields (OpenAPI schemas)."""
    if Schemas.standard().extend(definition, properties):
        decoding.forget()
