"""The rules of kinds that need more than their type: definitions, policies, webhooks, devices."""
