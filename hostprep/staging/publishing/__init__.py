"""What has grown is put together, made visible, and one day removed."""
