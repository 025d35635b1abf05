"""Pages inside the dashboard of a Dask scheduler: thin Bokeh over the views."""
