"""Put a data set into RAM or onto NVMe: scan, plan, copy, verify, publish, record."""
