"""Around the measuring child: started, followed, given up, cleaned up after."""
