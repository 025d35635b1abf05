"""Pages and pictures: pure view models and thin Bokeh."""
