"""Properties of functions as tests: what the decorators attach, what one test item runs."""
