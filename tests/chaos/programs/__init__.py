"""What the chaos run starts beside itself."""
