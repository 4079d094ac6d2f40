-- Decides takes and settlements over buckets, many in one call. The arithmetic is that of asgi_ratelimit/algorithms:
-- functions of the same names, with the same operations on doubles.
--
-- KEYS     for each take: the key of each charge's bucket, then that of its operation, if it has one;
--          for each settlement: the key of the bucket, that of its mark, then that of the operation that is undone, if
--          there is one
-- ARGV[1]  little-endian: a mark of this call, 8 bytes; d the time in microseconds (below 0: that of this server); d the
--          least milliseconds to live of a bucket; d the milliseconds to live of an operation, and the least of a
--          settlement's mark; H the number of quotas; then the quotas, and the actions, one behind the other.
--          quota  B format of its values, I4 stamp, and six doubles: limit, period (of a part, for a rolling window; of a
--               lease, for requests in flight), burst (the number of parts; what the refused wait), rate, slow rate, slack
--          take   B number of charges, H number of the first one's quota, d its cost (0: only waits for room), B flags
--               (1 best effort, 2 operation, 4 peek), d longest wait; then H and d of each further charge, and d id, if
--               it has an operation
--          settlement  B 0, H number of the quota, d cost, B flags (1 an operation is undone, 2 the settlement is not
--               remembered), d the time from which it is too late (0: never), d at, d slot, d place, d actual cost,
--               d token
--
-- Replies one text: the mark, d the time, and the answers to the actions, in order.
--   take        B verdict (0 refused, 1 allowed, 2 allowed before, under the same operation), d wait, d granted units of
--               each charge (0: the cost); for verdict 2, d time and d id of then; then for each charge: H length, and
--               the value that now holds
--   settlement  B whether it is the first, d time; H length, and the value that now holds
--   any         B 9: Redis refused a command; H length, and the text of the error. Buckets are as they were.
-- Times and waits are in microseconds. A refusal writes nothing.

local unpack, pack = struct.unpack, struct.pack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local byte, call, pcall_redis = string.byte, redis.call, redis.pcall

local TOKEN_BUCKET, FIXED_WINDOW, ROLLING_WINDOW, LARGEST, LONGEST_TTL_MS = 20, 21, 22, 2 ^ 63, 2 ^ 42
local NEVER, NEVER_US, FITS_US, NOISE_US = math.huge, 2 ^ 52, 2e-4, 1e-4

local now

-- token_bucket.py: a state is { used, at, since, returned }

local function token_bucket()
  local function drained_bucket(quota, used, elapsed)
    if elapsed <= 0 then return used end
    local left = used - elapsed * quota.rate
    if left >= quota.floor then return left end
    if used > quota.floor then elapsed, used = elapsed - (used - quota.floor) / quota.rate, quota.floor end
    return max(used - elapsed * quota.slow_rate, 0)
  end

  local function time_until(quota, used, target)
    if used <= target then return 0 end
    local exact
    if target >= quota.floor then
      exact = (used - target) / quota.rate
    else
      local slow = min(used, quota.floor)
      exact = (used - slow) / quota.rate + (slow - target) / quota.slow_rate
    end
    if exact <= FITS_US then return 0 end
    return exact < NEVER_US and ceil(exact - NOISE_US) or NEVER
  end

  return {
    unused = function(quota) return { 0, now, now, 0 } end,

    moved_back = function(quota, state) return { state[1], now, state[2] + state[1] / quota.rate + 1, state[4] } end,

    changed = function(quota, state) return { min(state[1], quota.burst), state[2], now, 0 } end,

    take = function(quota, state, cost, max_wait, min_wait, after)
      local left, since, returned = drained_bucket(quota, state[1], now - state[2]), state[3], state[4]
      if left <= 0 then since, returned = now, 0 end
      local burst, used, wait = quota.burst, left + cost, 0
      if used > burst then
        if cost > burst then
          wait = max_wait <= 0 and NEVER or time_until(quota, left, quota.slack)
        else
          wait = time_until(quota, left, burst - cost + quota.slack)
        end
        if wait > max_wait or wait == NEVER then return wait end
      end
      if min_wait > wait then wait = min_wait end
      if wait > 0 then -- as much as has drained by the slot to what is used then
        local at_slot = drained_bucket(quota, left, wait) + cost
        used = at_slot + wait * quota.rate
        if at_slot < burst - quota.slack - quota.rate then since = max(since, now + wait) end
      end
      after[1], after[2], after[3], after[4] = used, now, since, returned
      return wait
    end,

    give_back = function(quota, state, charge, units)
      local left, since, returned = drained_bucket(quota, state[1], now - state[2]), state[3], state[4]
      if max(charge.slot, charge.at) < since or charge.at > now then return state end
      local stop = charge.place - returned - quota.rate * (now - charge.at)
      if stop >= left - max(quota.slack, min(quota.rate, charge.cost / 2)) then -- it is the newest
        if charge.slot > now and units < charge.cost then since = max(since, charge.slot) end -- the rest keeps its slot
        left = min(left, stop)
        return { left - min(units, left), now, since, returned }
      end
      if left > quota.burst + quota.slack then return state end -- slots are booked behind it, and keep their times
      local back = min(units, left, max(charge.cost - quota.rate * (now - charge.slot), stop))
      if back <= 0 then return state end
      return { left - back, now, since, returned + back }
    end,

    debit = function(quota, state, slot, units)
      local left, since, returned = drained_bucket(quota, state[1], now - state[2]), state[3], state[4]
      if left <= 0 then since, returned = now, 0 end
      return { left + units, now, since, returned }
    end,

    available = function(quota, state)
      local burst, left = quota.burst, drained_bucket(quota, state[1], now - state[2])
      return left > burst and 0 or floor(min(burst - left + quota.slack + quota.slow_rate * FITS_US, burst))
    end,

    reset_us = function(quota, state) return time_until(quota, state[1], 0) end, -- a state that is written is of now

    pack = function(_, state, stamp)
      return pack('<BI4dddd', TOKEN_BUCKET, stamp, state[1], state[2], state[3], state[4])
    end,

    unpack = function(_, value, state)
      if #value ~= 37 then return nil end
      local most, kind, stamp, used, at, since, returned = LARGEST, unpack('<BI4dddd', value)
      if kind == TOKEN_BUCKET and used >= 0 and used <= most and at >= 0 and at <= most and since >= -most
        and since <= most and returned >= 0 and returned <= most then
        state[1], state[2], state[3], state[4] = used, at, since, returned
        return stamp, state, at
      end
    end,
  }
end

-- fixed_window.py: a state is { used, at }

local function fixed_window()
  local function start_of(quota, time) return floor(time / quota.period) * quota.period end

  local function drained_windows(quota, state)
    local start = start_of(quota, now)
    if start <= state[2] then return state[1], state[2] end
    local used = state[1] - (start - state[2]) / quota.period * quota.limit
    return used > 0 and used or 0, start
  end

  return {
    unused = function(quota) return { 0, start_of(quota, now) } end,

    moved_back = function(quota, state) return { state[1], start_of(quota, now) } end,

    changed = function(quota, state) return { min(state[1], quota.limit), state[2] } end,

    take = function(quota, state, cost, max_wait, min_wait, after)
      local used, at = drained_windows(quota, state)
      local limit, period = quota.limit, quota.period
      if cost > limit + quota.slack then return NEVER end
      local window = max(ceil(used / limit) - 1, 0)
      if used - window * limit + cost > limit + quota.slack then
        window = window + 1
        used = window * limit
      end
      local later = min_wait > 0 and (start_of(quota, now + min_wait) - at) / period or 0
      if later > window then
        window = later
        used = window * limit
      end
      local wait = window > later and at + window * period - now or min_wait
      if wait > max_wait or wait >= NEVER_US then return wait >= NEVER_US and NEVER or wait end
      after[1], after[2] = used + cost, at
      return wait
    end,

    give_back = function(quota, state, charge, units)
      local used, at = drained_windows(quota, state)
      local stop = charge.place - (at - charge.at) / quota.period * quota.limit
      local is_newest = stop >= used - quota.slack
      local is_current = start_of(quota, charge.slot) == at and used <= quota.limit + quota.slack
      if charge.slot < at or not (is_newest or is_current) then return state end
      return { used - min(units, used), at }
    end,

    debit = function(quota, state, slot, units)
      local used, at = drained_windows(quota, state)
      return { used + units, at }
    end,

    available = function(quota, state)
      return max(floor(min(quota.limit - drained_windows(quota, state) + quota.slack, quota.limit)), 0)
    end,

    reset_us = function(quota, state)
      local used, at = drained_windows(quota, state)
      if used <= 0 then return 0 end
      return at + ceil(used / quota.limit) * quota.period - now
    end,

    pack = function(_, state, stamp) return pack('<BI4dd', FIXED_WINDOW, stamp, state[1], state[2]) end,

    unpack = function(quota, value, state)
      if #value ~= 21 then return nil end
      local kind, stamp, used, at = unpack('<BI4dd', value)
      local is_valid = kind == FIXED_WINDOW and used >= 0 and used <= LARGEST and at >= 0 and at <= LARGEST
      if not (is_valid and start_of(quota, at) == at) then return nil end
      state[1], state[2] = used, at
      return stamp, state, at
    end,
  }
end

-- What rolling windows and requests in flight share: a state is { at, parts }, and parts are { number, value, ... }

local function with_parts(kind)
  local MOST_PARTS, MOST_BOOKED, LOOK_US, HELD_US, MOST_QUEUED, WAITING = 2048, 2000, 100000, 0.5, 100, 2

  local function append(parts, number, value)
    local n = #parts
    parts[n + 1], parts[n + 2] = number, value
  end

  local function filtered(parts, is_kept)
    local kept = {}
    for i = 1, #parts, 2 do
      if is_kept(parts[i], parts[i + 1]) then append(kept, parts[i], parts[i + 1]) end
    end
    return kept
  end

  local function moved(state, numbers_by, values_by)
    local parts = {}
    for i = 1, #state[2], 2 do append(parts, state[2][i] - numbers_by, state[2][i + 1] - values_by) end
    return { now, parts }
  end

  local function added(parts, number, value)
    local after = {}
    for i = 1, #parts, 2 do
      if parts[i] < number then append(after, parts[i], parts[i + 1]) end
      if parts[i] == number then value = value + parts[i + 1] end
    end
    append(after, number, value)
    for i = 1, #parts, 2 do
      if parts[i] > number then append(after, parts[i], parts[i + 1]) end
    end
    return after
  end

  local function pack_parts(quota, state, stamp)
    local texts = { pack('<BI4d', quota.kind, stamp, state[1]) }
    for i = 1, #state[2], 2 do texts[#texts + 1] = pack('<dd', state[2][i], state[2][i + 1]) end
    return table.concat(texts)
  end

  local function unpack_parts(quota, value)
    local count, parts, before = (#value - 13) / 16, {}, -NEVER
    if count < 0 or count > MOST_PARTS or count ~= floor(count) then return nil end
    local kind, stamp, at, place = unpack('<BI4d', value)
    if not (kind == quota.kind and at >= 0 and at <= LARGEST) then return nil end
    for i = 1, count do
      local index, units
      index, units, place = unpack('<dd', value, place)
      if not (before < index and index <= LARGEST and index == floor(index) and units > 0 and units <= LARGEST) then
        return nil
      end
      parts[2 * i - 1], parts[2 * i], before = index, units, index
    end
    return stamp, { at, parts }, at
  end

  -- rolling_window.py: the parts are of a period, and their units

  local rolling_window = { pack = pack_parts, unpack = unpack_parts }

  local function index_of(quota, time) return floor(time / quota.period) end

  function rolling_window.unused() return { now, {} } end

  function rolling_window.moved_back(quota, state)
    return moved(state, index_of(quota, state[1]) - index_of(quota, now), 0)
  end

  function rolling_window.changed(quota, state)
    local parts, left, current = state[2], quota.limit, index_of(quota, now)
    for i = #parts - 1, 1, -2 do
      parts[i + 1] = parts[i] <= current and min(parts[i + 1], left) or 0
      left = left - parts[i + 1]
    end
    return { state[1], filtered(parts, function(_, units) return units > 0 end) }
  end

  local function drained_parts(quota, state)
    local parts, first = state[2], index_of(quota, now) - quota.burst
    if #parts == 0 or parts[1] >= first then return parts end
    return filtered(parts, function(index) return index >= first end)
  end

  local function first_fit(quota, parts, most, earliest)
    local total, index = 0, earliest
    for i = 2, #parts, 2 do total = total + parts[i] end
    for i = 1, #parts, 2 do
      if parts[i] + quota.burst >= index then
        if total <= most then return index end
        index = parts[i] + quota.burst + 1
      end
      total = total - parts[i + 1]
    end
    return index
  end

  function rolling_window.take(quota, state, cost, max_wait, min_wait, after)
    if cost > quota.limit + quota.slack then return NEVER end
    local parts, earliest = drained_parts(quota, state), index_of(quota, now + min_wait)
    local n = #parts
    local last = n > 0 and parts[n - 1] > earliest and parts[n - 1] or earliest
    local index = first_fit(quota, parts, quota.limit - cost + quota.slack, last)
    local wait = index > earliest and index * quota.period - now or min_wait
    if wait > max_wait or wait >= NEVER_US then return wait >= NEVER_US and NEVER or wait end
    local booked = {}
    for i = 1, n do booked[i] = parts[i] end
    if n > 0 and parts[n - 1] == index then
      booked[n] = parts[n] + cost
    elseif n >= 2 * MOST_BOOKED then
      return NEVER
    else
      booked[n + 1], booked[n + 2] = index, cost
    end
    after[1], after[2] = now, booked
    return wait
  end

  function rolling_window.give_back(quota, state, charge, units)
    local own, kept, parts = index_of(quota, charge.slot), {}, drained_parts(quota, state)
    for i = 1, #parts, 2 do
      local left = parts[i] == own and parts[i + 1] - units or parts[i + 1]
      if left > quota.slack then append(kept, parts[i], left) end
    end
    return { now, kept }
  end

  function rolling_window.debit(quota, state, slot, units)
    local current, own = index_of(quota, now), index_of(quota, slot)
    return { now, added(drained_parts(quota, state), own >= current - quota.burst and own or current, units) }
  end

  function rolling_window.available(quota, state)
    local parts, total = drained_parts(quota, state), 0
    for i = 2, #parts, 2 do total = total + parts[i] end
    if #parts > 0 and parts[#parts - 1] > index_of(quota, now) then return 0 end
    return max(floor(min(quota.limit - total + quota.slack, quota.limit)), 0)
  end

  function rolling_window.reset_us(quota, state)
    local parts = drained_parts(quota, state)
    return #parts > 0 and (parts[#parts - 1] + quota.burst + 1) * quota.period - now or 0
  end

  -- in_flight.py: the parts are leases: their ids, and their ends

  local in_flight = { pack = pack_parts, unpack = unpack_parts, unused = rolling_window.unused }

  function in_flight.changed(_, state) return state end

  function in_flight.moved_back(_, state) return moved(state, 0, state[1] - now) end

  local function living(state, but) -- without the lease `but`, if there is one
    return filtered(state[2], function(lease, stop) return stop > now and lease ~= but end)
  end

  function in_flight.take(quota, state, cost, max_wait, min_wait, after)
    local leases, wait, lasts, most = living(state), min_wait, quota.period, 2 * quota.limit
    local n = #leases
    if n >= most then
      if max_wait <= 0 or n >= most + 2 * MOST_QUEUED then return max_wait + quota.burst end
      wait, lasts = min_wait > 0 and min_wait or min(max_wait, LOOK_US), quota.period / WAITING
    end
    append(leases, n > 0 and max(now, leases[n - 1] + 1) or now, now + min_wait + lasts)
    after[1], after[2] = now, leases
    return wait
  end

  function in_flight.give_back(_, state, charge) return { now, living(state, charge.place) } end

  function in_flight.debit(quota, state, slot, units)
    local others, count = living(state, slot), #living(state)
    local is_full = count >= 2 * (quota.limit + MOST_QUEUED)
    if #others == count and (units > 1 or is_full) then return state end
    return { now, added(others, slot, now + (units == 1 and quota.period - HELD_US or quota.period / WAITING)) }
  end

  function in_flight.available(quota, state) return max(quota.limit - #living(state) / 2, 0) end

  function in_flight.reset_us(quota, state)
    local last = now
    for i = 2, #state[2], 2 do last = max(last, state[2][i]) end
    return last - now
  end

  return kind == ROLLING_WINDOW and rolling_window or in_flight
end

-- By format, from 20 on. Lua makes all functions anew in each call, so those that no quota of it needs are left out.

local MAKERS, algorithms = { token_bucket, fixed_window, with_parts, with_parts }, {}

-- take.py: of the charges of the take at hand; with new tables for each take, it would cost a quarter more

local first = { quota = nil, cost = 0, value = '', state = { 0, 0, 0, 0 }, after = { 0, 0, 0, 0 } } -- needs not grow
local charges = { first } -- each with quota, cost, value and state, and the state after it

local function decide(count, max_wait)
  local longest = 0
  for i = 1, count do
    local charge, quota = charges[i], charges[i].quota
    local wait = quota.algorithm.take(quota, charge.state, charge.cost, max_wait, 0, charge.after)
    if wait > longest then longest = wait end
  end
  if longest > max_wait or longest == NEVER then return longest, false end
  if longest == 0 or count == 1 then return longest, true end
  for i = 1, count do
    local charge, quota = charges[i], charges[i].quota
    local wait = quota.algorithm.take(quota, charge.state, charge.cost, NEVER, longest, charge.after)
    if wait > longest then return NEVER, false end -- no window has a place that late
  end
  return longest, true
end

local function most_at_once(count)
  local most = first.cost
  for i = 1, count do
    local quota = charges[i].quota
    most = min(most, quota.algorithm.available(quota, charges[i].state))
  end
  return max(most, min(first.cost, 1))
end

local function settle(quota, state, charge, actual, is_changed)
  local algorithm, units, known = quota.algorithm, charge.cost - actual, state
  if units < 0 then return algorithm.debit(quota, state, charge.slot, -units) end
  if units > 0 and is_changed and quota.kind <= FIXED_WINDOW then known = algorithm.changed(quota, state) end
  if units == 0 or known[1] ~= state[1] then return state end
  local settled = algorithm.give_back(quota, known, charge, units)
  return settled == known and state or settled
end

-- Stored values. `free` is a table that nobody needs any longer: a state of fixed size is read into it.

local function read(quota, value, free, is_as_stored)
  local algorithm = quota.algorithm
  local stamp, state, at = algorithm.unpack(quota, value, free)
  if not stamp then return algorithm.unused(quota), false end
  if stamp ~= quota.stamp and not is_as_stored then state = algorithm.changed(quota, state) end
  if at <= now then return state, false, stamp end
  return algorithm.moved_back(quota, state), true, stamp
end

-- The calls of Redis, the arguments and the reply

local function get(key, last) -- '' for none; the reply has two bytes for the length of a bucket's value
  local value = pcall_redis('GETRANGE', key, '0', last or '65534')
  if #value > 0 or value == '' then return value end -- an error is a table without items
  if string.find(value.err, 'WRONGTYPE', 1, true) then return '' end -- it counts as never used
  error(value.err, 0)
end

local keys, quotas, actions, at_key = KEYS, {}, ARGV[1], 0
local mark_of_call, own_us, least_ttl_ms, operation_ttl_ms, number_of_quotas, at_byte = unpack('<c8dddH', actions)

for i = 1, number_of_quotas do
  local kind, stamp, limit, period, burst, rate, slow_rate, slack
  kind, stamp, limit, period, burst, rate, slow_rate, slack, at_byte = unpack('<BI4dddddd', actions, at_byte)
  algorithms[kind] = algorithms[kind] or MAKERS[kind - 19](kind)
  quotas[i] = {
    kind = kind, stamp = stamp, limit = limit, period = period, burst = burst, rate = rate, slow_rate = slow_rate,
    slack = slack, floor = slow_rate < rate and burst - 1 or 0, algorithm = algorithms[kind],
  }
end

local time = call('TIME')
local server_us = time[1] * 1000000 + time[2]
local server_ms = floor(server_us / 1000)
now = own_us < 0 and server_us or own_us

local function write(quota, key, state, stamp)
  local algorithm = quota.algorithm
  local value = algorithm.pack(quota, state, stamp or quota.stamp)
  local ttl_ms = ceil(algorithm.reset_us(quota, state) / 1000)
  if stamp and stamp ~= quota.stamp then ttl_ms = max(ttl_ms, call('PTTL', key)) end -- what other numbers need
  if ttl_ms < least_ttl_ms then ttl_ms = least_ttl_ms end
  if ttl_ms > LONGEST_TTL_MS then ttl_ms = LONGEST_TTL_MS end
  call('SET', key, value, 'PXAT', server_ms + ttl_ms) -- Redis would make this of PX, and takes longer for that
  return value
end

local reply, size, lengths = { mark_of_call, pack('<d', now) }, 2, {} -- of values, packed

local function answer(text)
  size = size + 1
  reply[size] = text
end

local function answer_value(value)
  local length = lengths[#value] or pack('<H', #value)
  lengths[#value] = length
  size = size + 2
  reply[size - 1], reply[size] = length, value
end

local ALLOWED = pack('<Bdd', 1, 0, 0)

local function is_answer(text, count) -- anything else counts as no answer
  local at = 34
  for _ = 1, count do
    if at >= #text then return false end
    at = at + 2 + unpack('<H', text, at)
  end
  return at == #text + 1 and byte(text) == 2
end

local function take(count, flags, max_wait)
  local first_key, is_operation, granted, id = at_key, flags % 4 >= 2, 0
  at_key = first_key + count
  for i = 2, count do
    local charge, number = charges[i] or { after = {} }
    number, charge.cost, at_byte = unpack('<Hd', actions, at_byte)
    charge.quota, charges[i] = quotas[number], charge
  end
  if is_operation then
    id, at_byte = unpack('<d', actions, at_byte)
    at_key = at_key + 1
    local before = get(keys[at_key], '1048575') -- the values of all its buckets
    if is_answer(before, count) then return answer(before) end
  end
  for i = 1, count do
    local charge, key = charges[i], keys[first_key + i]
    local value = get(key)
    local state, is_ahead, stamp = read(charge.quota, value, charge.state or {})
    if not stamp then value = '' end -- so nobody has to check the values of an answer
    if is_ahead and flags < 4 then value = write(charge.quota, key, state) end -- or time would stand still
    charge.value, charge.state = value, state
  end
  if flags % 2 == 1 then
    granted = most_at_once(count)
    for i = 1, count do charges[i].cost = granted end
  end
  local wait, is_allowed = decide(count, max_wait)
  local is_written, first_value = is_allowed and flags < 4, size + 2
  answer(is_written and wait + granted == 0 and ALLOWED or pack('<Bdd', is_allowed and 1 or 0, wait, granted))
  for i = 1, count do
    local charge = charges[i]
    local value = charge.value
    if is_written and charge.cost > 0 then value = write(charge.quota, keys[first_key + i], charge.after) end
    answer_value(value)
  end
  if is_operation and is_written then
    local head = pack('<Bdddd', 2, wait, granted, now, id)
    call('SET', keys[at_key], head .. table.concat(reply, '', first_value, size), 'PX', operation_ttl_ms)
  end
end

local function settlement(flags, until_us)
  local at, slot, place, actual, token
  at, slot, place, actual, token, at_byte = unpack('<ddddd', actions, at_byte)
  local quota, undone, bucket, mark = first.quota, flags % 2, keys[at_key + 1], keys[at_key + 2]
  at_key = at_key + 2 + undone
  local value, marked = get(bucket), get(mark)
  if marked ~= '' or until_us > 0 and now >= until_us then
    answer(pack('<Bd', token > 0 and marked == string.format('%.0f', token) and 1 or 0, now))
    return answer_value(value)
  end
  if flags < 2 then
    local ttl_ms = min(max(ceil((until_us - now) / 1000), operation_ttl_ms), LONGEST_TTL_MS)
    call('SET', mark, string.format('%.0f', token), 'PX', string.format('%d', ttl_ms))
  end
  if undone == 1 then call('DEL', keys[at_key]) end
  local state, _, stamp = read(quota, value, {}, true)
  local charge = { at = at, slot = slot, place = place, cost = first.cost }
  local settled = settle(quota, state, charge, actual, stamp and stamp ~= quota.stamp)
  if settled ~= state then value = write(quota, bucket, settled, stamp) end
  answer(pack('<Bd', 1, now))
  answer_value(value)
end

local before

local function carry_out()
  while at_byte <= #actions do
    local count, number, cost, flags, us
    count, number, cost, flags, us, at_byte = unpack('<BHdBd', actions, at_byte)
    before, first.quota, first.cost = size, quotas[number], cost
    if count > 0 then take(count, flags, us) else settlement(flags, us) end
  end
end

repeat
  local is_done, problem = pcall(carry_out)
  if not is_done then -- an action has failed; those behind it go on
    size = before
    answer('\9')
    answer_value(type(problem) == 'table' and problem.err or tostring(problem))
  end
until is_done
return table.concat(reply, '', 1, size)
