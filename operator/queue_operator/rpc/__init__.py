"""The worker plane: sessions of worker processes over gRPC."""
