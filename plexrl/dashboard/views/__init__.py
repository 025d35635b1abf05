"""What each page shows, as plain values: no Bokeh, no Dask."""
