"""Who owns which field: managedFields, and server-side apply.

Knows schemas and objects, and neither stores nor requests. Which manager's name a request
stands for, and what happens to the object before and after, is left to the verbs.
"""

from dralab.apiserver.managed_fields.field_managers import (
    ConflictError,
    FieldManager,
    apply,
    update,
)

__all__ = ["ConflictError", "FieldManager", "apply", "update"]
