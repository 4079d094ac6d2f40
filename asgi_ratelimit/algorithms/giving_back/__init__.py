"""What a token bucket records of its past and future, so that charges can be given back exactly."""
