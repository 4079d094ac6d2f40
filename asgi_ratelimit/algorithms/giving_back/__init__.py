"""How a token bucket gives units back, and what it records for that of past charges and of slots in the future.

Takes use ``recording``, which keeps the record of past charges, and ``gaps``. Settlements use ``settled_charges``. It
finds a charge in the queue (``queued_charges``), and gives units back: of a slot that lies ahead (``charges_ahead``),
or of a charge whose time has come (``past_charges``). What the record says is in ``lows``.
"""
