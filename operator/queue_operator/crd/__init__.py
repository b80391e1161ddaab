"""The custom resources: their models, their manifests, and how a job looks in them."""
