"""Public traces of clusters, read as pods and nodes; `formats` has the table of them."""
