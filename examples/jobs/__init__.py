"""Jobs that carry tickets, in job queues that know when to run them."""
