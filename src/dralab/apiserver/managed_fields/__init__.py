"""Field ownership: managedFields, and server-side apply.

It works on schemas and objects, without stores or requests. The verbs determine the manager's name,
and what happens to the object before and after.
"""

from dralab.apiserver.managed_fields.field_managers import (
    ConflictError,
    FieldManager,
    apply,
    fits,
    update,
)

__all__ = ["ConflictError", "FieldManager", "apply", "fits", "update"]
