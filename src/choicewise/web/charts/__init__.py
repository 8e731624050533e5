"""The charts: each file makes plain records of tables (``values``) and a Vega-Lite specification (``spec``)."""
