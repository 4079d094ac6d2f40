"""Jobs that carry tickets, in job queues that can schedule them."""
