"""Example models, fetched by pinned hash or generated with seeded weights."""
