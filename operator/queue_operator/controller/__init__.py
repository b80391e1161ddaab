"""The Kubernetes side: resources in, statuses out."""
