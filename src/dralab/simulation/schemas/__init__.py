"""JSON schemas of the files that users write, for editors.

What a file may say is decided by its readers (`scenario`, `campaigns`, `engines.external.options`).
Names and bounds come from them; tests hold the schemas to what the readers ask for and refuse.
"""
