-- Rate limiting and pacing with token buckets (leaky buckets as meters), fixed and rolling windows: one call carries
-- out a list of takes, each all or nothing, and of settlements.
--
-- The functions are those of the modules in algorithms/: same names, same order, same operations on doubles, so that
-- both give bit-identical answers. All reads of a take come before its writes; a refused take writes nothing.
--
-- KEYS     one string key for each charge, in the order of the takes, and before the charges of an operation its own
--          key; all in one slot on a cluster
-- ARGV[1]  the distinct quotas, packed: for each  c8 stamp (its first byte is the format of values, and it is filled
--          up with zeros), d period_us, d limit, d most, and then
--          for a token bucket (7)    d slow_rate, d burst_level, d burst_floor
--          for a fixed window (8)    d 0, d 0, d 0
--          for a rolling window (9)  d buckets, d part_us, d 0
-- ARGV[2]  the actions, packed: for each
--          equal takes    B 1, or B 2 for a best effort, H how many of them, on keys that follow one another,
--                         d max_wait_us (-1: evaluate, but write nothing), H charges,
--                         and for each charge  H number of the quota, from 1, d cost (0: a condition);
--                         16 more in the first byte where the takes may be settled
--          a settlement   B 3, H 1, d id, H charges, and for each charge
--                         H number of the quota, d cost, d actual, d since_us, d generation, d place, d slot_us
--          a reset        B 4, H 1, d 0, H charges, and for each charge  H number of the quota, d 0
--          an operation   B 5, H mode, d ttl_us, H bytes of the one action that follows, d until_us, d token: that is
--                         carried out if it has not been yet, as the value of the operation's key says; see `once`
-- ARGV[3]  the time in microseconds since the epoch, or '' for the server's own
-- ARGV[4]  the least time to live of a key, in milliseconds
-- ARGV[5]  where births start: a state that is made for key number i of this call, from 1, is of the generation
--          births + i, modulo GENERATIONS
-- ARGV[6]  a mark of this call, to tell its reply from others
--
-- Values are packed as algorithms/packed_states.py describes.
--
-- Reply    { a head, then for each key its value before, false where there was none; that of an operation only where it
--            is answered again, and then those of its charges are not read }
--          The head is one text, because each element costs Redis time: the mark, and behind it with a space between
--          them the time, the steps, and one character for each take or settlement: '1' allowed or done, '0' not, '2'
--          answered again.
--
-- A call does MAX_STEPS steps, and finishes the take or settlement that reaches them. The remaining actions have no
-- character in the reply, and the caller sends them again.
--
-- Packed numbers are little-endian; d is a double and holds every whole microsecond, which tostring would not.
-- Redis runs this whole file at each call, so functions that most calls do not need are defined when first needed.

local LONGEST_TTL = 2 ^ 46 -- in milliseconds, 2,230 years: 14 digits, as many as a number keeps when it becomes a text
local NEVER_US = 2 ^ 52
local MAX_STEPS = 2500 -- a step takes less than a microsecond, and less than half of one in takes of large values
local BYTES_OF_A_STEP = 96 -- that are copied, of values and records
local PLAIN_STEPS = 4 -- for a charge to a token bucket that takes the fast way
local CHARGE_STEPS = 20 -- for any other charge, besides those for its gaps, record, runs and parts
local MAY_SETTLE = 16
local QUOTA_SIZE = 56 -- bytes of a quota in ARGV[1]
local PLAIN_SIZE = 28 -- bytes of the value of a token bucket without gaps, a record and an older version
local BUCKET, FIXED, ROLLING = 7, 8, 9 -- the formats of values
local GENERATIONS = 2 ^ 31

local ceil, floor, max, min, huge = math.ceil, math.floor, math.max, math.min, math.huge

local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local actions, least_ttl, births = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local reply, verdicts = { '' }, {}
local charges_done, steps = 0, 0
local last_key, last_value -- the key that was read or written last, and its value: no key is read twice in a row

-- A cost scaled by the period, rounded up to a whole number, except for a double's noise.
local function scaled_cost(period_us, cost)
  local scaled = cost * period_us
  if scaled % 1 == 0 then return scaled end
  local nearest = floor(scaled + 0.5)
  if math.abs(scaled - nearest) <= nearest * 1e-12 then return nearest end
  return ceil(scaled)
end

-- From 7.2 on, Redis turns a whole number into a text faster than Lua does.
local takes_numbers = (redis.REDIS_VERSION_NUM or 0) >= 0x70200

-- The server's time in milliseconds.
local function time_ms()
  if ARGV[3] == '' then return floor(now / 1000) end
  local time = redis.call('TIME')
  return time[1] * 1000 + floor(time[2] / 1000)
end

-- token_bucket_level: how a level drains. Charges without a wait on buckets that drain at one rate do not need this.

local drained, drain_time, drain_wait

local function define_draining()
  drained = function(quota, level, elapsed)
    if elapsed <= 0 then return level end
    if level <= quota.burst_floor or quota.slow_rate == quota.limit then
      return max(level - elapsed * quota.slow_rate, 0)
    end
    local above = (level - quota.burst_floor) / quota.limit
    if elapsed <= above then return max(level - elapsed * quota.limit, quota.burst_floor) end
    return max(quota.burst_floor - (elapsed - above) * quota.slow_rate, 0)
  end

  drain_time = function(quota, level, target)
    if level <= target then return 0 end
    local is_fast = target >= quota.burst_floor or quota.slow_rate == quota.limit
    if is_fast then return ceil((level - target) / quota.limit) end
    local fast = max(level - quota.burst_floor, 0) / quota.limit
    return ceil(fast + (min(level, quota.burst_floor) - target) / quota.slow_rate)
  end

  drain_wait = function(quota, level, elapsed, target)
    if level <= target then return 0 end
    local wait_us = drain_time(quota, level, target) - elapsed
    if wait_us >= NEVER_US then return huge end
    while drained(quota, level, elapsed + wait_us) > target do wait_us = wait_us + 1 end
    while wait_us > 0 and drained(quota, level, elapsed + (wait_us - 1)) <= target do wait_us = wait_us - 1 end
    return wait_us
  end
end

-- The fast way: equal takes of token buckets with plain values; their charges are packed from `at` on. It ends before a
-- take that needs the general way, for example if a take that may be settled has anything to record, or at MAX_STEPS.
-- It returns how many takes are left. What a take finds in a bucket is kept in local variables, and in the charge's
-- table only if there are several charges.
local function take_plain(count, max_wait_us, charges, at, may_settle)
  local keys, pack, unpack, call, try = KEYS, struct.pack, struct.unpack, redis.call, redis.pcall
  local now, reply, verdicts, takes_numbers, least_ttl = now, reply, verdicts, takes_numbers, least_ttl
  local is_simple, is_never, is_several, all = max_wait_us <= 0, false, charges > 1, {}
  for i = 1, charges do
    local number, cost
    number, cost, at = unpack('<Hd', actions, at)
    local start = (number - 1) * QUOTA_SIZE + 1
    if string.byte(ARGV[1], start) ~= BUCKET then return count end
    local stamp, period_us, limit, most, slow_rate, burst_level, burst_floor = unpack('<ddddddd', ARGV[1], start)
    local scaled = scaled_cost(period_us, cost)
    all[i] = { -- the quota, the cost, and what a take finds
      stamp = stamp, period_us = period_us, limit = limit, slow_rate = slow_rate, burst_floor = burst_floor,
      scaled = scaled, target = max(burst_level - scaled, 0), burst_level = burst_level,
      level = 0, left = 0, last = 0, generation = 0,
    }
    is_simple = is_simple and slow_rate == limit
    is_never = is_never or (cost > most and max_wait_us <= 0)
    if may_settle and scaled > burst_level then return count end
  end
  local charge = all[1]
  local stamp, period_us, limit = charge.stamp, charge.period_us, charge.limit
  local target, scaled = charge.target, charge.scaled
  local level, left, last, generation, latest_ms, expiry, server_ms
  -- back to the script's own variables at the end, because locals are faster
  local done, steps_done, read_key, read_value, said = charges_done, steps, last_key, last_value, #verdicts
  local more_steps, needs_more = PLAIN_STEPS * charges, false
  if not is_simple and not drained then define_draining() end
  while count > 0 and steps_done < MAX_STEPS do
    local wait_us, is_recorded = is_never and huge or 0, false
    for i = 1, charges do
      local number = done + i
      local key = keys[number]
      if is_several then
        charge = all[i]
        stamp, period_us, limit, target = charge.stamp, charge.period_us, charge.limit, charge.target
      end
      if key ~= read_key then read_key, read_value = key, try('GET', key) end
      reply[number + 1] = read_value
      if read_value then
        if #read_value ~= PLAIN_SIZE then -- an error is a table without a length
          needs_more = true
          break
        end
        local stored_stamp
        stored_stamp, last, level, generation = unpack('<dddI', read_value)
        local elapsed, sum = now - last, last + level
        if stored_stamp ~= stamp or elapsed < -period_us or sum - sum ~= 0 then -- one of them is not finite
          needs_more = true
          break
        end
        if is_simple and elapsed >= 0 then
          left = level - elapsed * limit
          if left < 0 then left = 0 end
        else
          if not drained then define_draining() end
          left = drained(charge, level, elapsed)
        end
        if left > target then
          wait_us = max_wait_us > 0 and max(wait_us, drain_wait(charge, level, elapsed, target)) or huge
        end
        if may_settle and elapsed > 0 and left > 0 then is_recorded = true end
      else
        level, left, last, generation = 0, 0, now, (births + number) % GENERATIONS
      end
      if is_several then
        charge.level, charge.left, charge.last, charge.generation = level, left, last, generation
      end
    end
    if needs_more then break end
    local allowed = wait_us <= max_wait_us and wait_us < huge
    if allowed and (is_recorded or (wait_us > 0 and may_settle)) then break end
    if is_several and wait_us > 0 and allowed then
      for i = 1, charges do
        local each = all[i]
        if now + wait_us > max(now, each.last) then
          local below = drained(each, each.level, now + wait_us - each.last)
          needs_more = needs_more or below + each.scaled + each.limit <= each.burst_level
        end
      end
      if needs_more then break end
    end
    for i = 1, allowed and charges or 0 do
      if is_several then
        charge = all[i]
        stamp, limit, scaled = charge.stamp, charge.limit, charge.scaled
        level, left, last, generation = charge.level, charge.left, charge.last, charge.generation
      end
      local since, meaning_ms = now, nil
      if is_simple and now >= last then
        left = left + scaled
        meaning_ms = left / limit / 1000
      else
        if last > now then since = last end
        if wait_us > 0 then left = drained(charge, level, now - last + wait_us) end
        left = left + scaled
        if now + wait_us > since then left = left + (now + wait_us - since) * limit end
        meaning_ms = (since - now + drain_time(charge, left, 0)) / 1000
      end
      if scaled > 0 then -- a condition is not written
        if meaning_ms ~= latest_ms then
          latest_ms, server_ms = meaning_ms, server_ms or time_ms()
          if meaning_ms < least_ttl then meaning_ms = least_ttl end
          if meaning_ms > LONGEST_TTL then meaning_ms = LONGEST_TTL end
          expiry = server_ms + meaning_ms
          expiry = expiry + -expiry % 1 -- rounded up
          if not takes_numbers then expiry = string.format('%d', expiry) end
        end
        read_key, read_value = keys[done + i], pack('<dddI', stamp, since, left, generation)
        call('SET', read_key, read_value, 'PXAT', expiry, 'GET') -- PX and a reply 'OK' take more time
      end
    end
    said = said + 1
    verdicts[said] = allowed and '1' or '0'
    done, steps_done, count = done + charges, steps_done + more_steps, count - 1
  end
  charges_done, steps, last_key, last_value = done, steps_done, read_key, read_value
  return count
end

-- the general way, defined when it is first needed --------------------------------------------------------------------
-- A state has the fields last, generation, gaps { start, size, start, size, ... }, record (see below) and older, and
-- those of its kind. The functions of a kind receive the generation of a state that they make as `birth`.

local function general_way()
  local MAX_PIECES = 256
  local PIECES_OF_TAKE = 512
  local MAX_LOWS = 8
  local ANEW = GENERATIONS
  local FINE = 2 ^ 30
  local MAX_LOOKS = 600
  local MAX_DEBIT = 2 ^ 63
  local NOISE = 1e-12
  local PIECES_OF_A_LOOK = 32
  local DEBIT_LOOKS = 4
  local PAYMENTS = 32
  local PARTS_OF_PAYMENTS = 768
  local LOOK_STEPS = 6 -- besides those for the numbers that are searched
  local READ_STEPS = 1 / 3 -- for a number of a value
  local PASS_STEPS = 1 / 4 -- each time that a number is searched
  local STAMP_SIZES = { [BUCKET] = 8, [FIXED] = 5, [ROLLING] = 7 }

  local quotas = {}
  local most_pieces = MAX_PIECES -- of each state that this action reads
  if not drained then define_draining() end

  -- stamp, period_us, limit, most, and three numbers of its kind
  local function numbers_of(quota)
    return struct.unpack('<c8dddddd', ARGV[1], (quota - 1) * QUOTA_SIZE + 1)
  end

  local function quota_of(number)
    local quota = quotas[number]
    if not quota then
      local stamp, period_us, limit, most, a, b, c = numbers_of(number)
      local kind = string.byte(stamp)
      quota = {
        kind = kind, stamp = string.sub(stamp, 1, STAMP_SIZES[kind]), period_us = period_us, limit = limit, most = most,
        slow_rate = a, burst_level = b, burst_floor = c, buckets = a, part_us = b,
      }
      quotas[number] = quota
    end
    return quota
  end

  local function read(key)
    if key ~= last_key then last_key, last_value = key, redis.pcall('GET', key) end
    if type(last_value) == 'table' then -- an error: a key of a foreign type counts as unused, all other errors do not
      if not string.find(last_value.err, 'WRONGTYPE', 1, true) then error(last_value.err) end
      last_value = false
    end
    return last_value
  end

  -- The time to live as SET wants it.
  local function ttl_text(ttl)
    return min(max(ttl, least_ttl), LONGEST_TTL) .. ''
  end

  local function write(key, value, meaning_us)
    redis.call('SET', key, value, 'PX', ttl_text(ceil(meaning_us / 1000)))
    last_key, last_value = key, value
  end

  -- The generation of a state made from another version's differs by ANEW.
  local function anew(generation)
    return generation < ANEW and generation + ANEW or generation - ANEW
  end

  -- The functions below change a state and return it.
  local function changed(state, changes)
    for name, value in pairs(changes) do state[name] = value end
    state.with_debit = nil
    return state
  end

  local function is_finite(numbers)
    for i = 1, #numbers do
      if numbers[i] - numbers[i] ~= 0 then return false end
    end
    return true
  end

  -- The `count` numbers from a place in a value on, and the place after them.
  local function numbers_at(value, at, count)
    steps = steps + READ_STEPS * count
    local numbers = { struct.unpack('<' .. ('d'):rep(count), value, at) }
    numbers[count + 1] = nil -- where it ends
    return numbers, at + 8 * count
  end

  -- All numbers from a place in a value to its end, in groups of `group`.
  local function numbers_from(value, at, group)
    local count = (#value - at + 1) / 8
    if count % group ~= 0 then error('cut short') end
    return (numbers_at(value, at, count))
  end

  local function packed_numbers(numbers)
    return struct.pack('<' .. ('d'):rep(#numbers), unpack(numbers))
  end

  local of_older -- the state of the other version of a window

  local function without_what_is_over(quota, state)
    local older = state.older
    if older ~= '' and quota.algorithm.reset_us(quota, of_older(quota, older), now) <= 0 then state.older = '' end
    return state
  end

  -- exact_units: windows count whole units, or millionths of a unit if the limit is not too large for them

  local function snapped(quota, units)
    if units % 1 == 0 then return units end
    if quota.limit >= FINE then return ceil(units) end
    local fine = units * 1e6 + 0.5 -- rounded without a call, because windows do this for each of their parts
    fine = (fine - fine % 1) / 1e6
    return fine < 1e-6 and 1e-6 or fine
  end

  local function count_left(quota, count, cost, actual)
    local left = count - (snapped(quota, cost) - snapped(quota, actual))
    return left > 0 and snapped(quota, left) or 0
  end

  local function debit_beside(quota, debit, count, settled)
    if debit <= 0 then return 0 end
    local beyond = snapped(quota, settled.cost) - snapped(quota, settled.actual) - count
    return beyond > 0 and snapped(quota, max(debit - beyond, 0)) or debit
  end

  local function whole_units(quota, count)
    local limit = snapped(quota, quota.limit)
    local units = floor(limit - count + 0.5)
    while units > 0 and (units > quota.limit or snapped(quota, count + units) > limit) do units = units - 1 end
    return max(units, 0)
  end

  -- stamps: those of token buckets, as quota_stamps.py packs them

  local function period_in(stamp)
    local format, high = struct.unpack('<BxxxI', stamp)
    local zeros, digits = floor(high / 2 ^ 28) - 1, floor(high / 2 ^ 12) % 2 ^ 16
    return zeros >= 0 and format == BUCKET and digits * 10 ^ zeros or 0
  end

  local function limit_in(stamp)
    local code = floor(struct.unpack('<I', stamp) / 256)
    return (struct.unpack('<f', struct.pack('<I', (code + 2 ^ 23) * 64)))
  end

  -- token_bucket: state.level -----------------------------------------------------------------------------------------

  local function token_bucket()
    local algorithm = {}

    local function add_gap(gaps, start, size)
      if size > 0 then gaps[#gaps + 1], gaps[#gaps + 2] = start, size end
    end

    local function gap_at(quota, start, size, elapsed)
      start = start - max(elapsed, 0) * quota.limit
      if start >= 0 then return start, size end
      return 0, size + start
    end

    local function gaps_after(quota, gaps, elapsed)
      local passed, after, count = max(elapsed, 0) * quota.limit, {}, 0
      for i = 1, #gaps, 2 do
        local start, size = gaps[i] - passed, gaps[i + 1]
        if start < 0 then start, size = 0, size + start end
        if size > 0 then
          after[count + 1], after[count + 2] = start, size
          count = count + 2
        end
      end
      return after
    end

    local function fits(quota, start, size, elapsed, scaled)
      start, size = gap_at(quota, start, size, elapsed)
      return elapsed >= 0 and scaled <= size and start + scaled <= quota.burst_level
    end

    local function gap_wait(quota, start, size, earliest, scaled)
      local elapsed = max(earliest, ceil((start + scaled - quota.burst_level) / quota.limit))
      if elapsed >= NEVER_US then return huge end
      if not fits(quota, start, size, elapsed, scaled) then
        elapsed = elapsed + 1
        if not fits(quota, start, size, elapsed, scaled) then return huge end
      end
      while elapsed > earliest and fits(quota, start, size, elapsed - 1, scaled) do elapsed = elapsed - 1 end
      return elapsed
    end

    -- The position of the first gap that ends above a level.
    local function first_above(gaps, passed)
      local are_over, ahead = 0, #gaps / 2
      while are_over < ahead do
        local middle = floor((are_over + ahead) / 2)
        if gaps[2 * middle + 1] + gaps[2 * middle + 2] > passed then ahead = middle else are_over = middle + 1 end
      end
      return 2 * are_over + 1
    end

    local function earliest_gap(quota, gaps, elapsed, scaled, end_wait_us, min_wait_us)
      if #gaps == 0 or scaled > quota.burst_level then return end_wait_us end
      local earliest = max(elapsed + min_wait_us, 0)
      for i = first_above(gaps, earliest * quota.limit), #gaps, 2 do
        if scaled <= gaps[i + 1] then
          local wait_us = gap_wait(quota, gaps[i], gaps[i + 1], earliest, scaled) - elapsed
          if wait_us < huge then return min(wait_us, end_wait_us) end
        end
      end
      return end_wait_us
    end

    local function place_in_gap(quota, state, now, scaled, wait_us)
      local slot, gaps = now + wait_us, state.gaps
      local elapsed = slot - state.last
      for i = elapsed >= 0 and first_above(gaps, elapsed * quota.limit) or #gaps + 1, #gaps, 2 do
        local start, size = gap_at(quota, gaps[i], gaps[i + 1], elapsed)
        if start + scaled > quota.burst_level then break end -- gaps are in order
        if scaled <= size then return i, start + (slot - max(now, state.last)) * quota.limit end
      end
      return nil
    end

    local function gaps_without(quota, gaps, elapsed, taken, start, scaled)
      local after, passed = {}, max(elapsed, 0) * quota.limit
      for i = 1, #gaps, 2 do
        local at, size = gaps[i] - passed, gaps[i + 1]
        if at < 0 then at, size = 0, size + at end
        if i == taken then
          local bottom = max(start, at)
          add_gap(after, at, bottom - at)
          add_gap(after, bottom + scaled, at + size - (bottom + scaled))
        elseif size > 0 then
          local count = #after
          after[count + 1], after[count + 2] = at, size
        end
      end
      for i = #after, 2 * MAX_PIECES + 1, -1 do after[i] = nil end
      return after
    end

    local function with_gap(gaps, start, size)
      local stop, after, adds, count = start + size, {}, true, 0
      for i = 1, #gaps, 2 do
        local at, width = gaps[i], gaps[i + 1]
        if at + width < start or at > stop then
          if adds and at > stop then
            after[count + 1], after[count + 2] = start, size
            adds, count = false, count + 2
          end
          after[count + 1], after[count + 2] = at, width
          count = count + 2
        else
          start, size = min(start, at), size + width
        end
      end
      if adds then add_gap(after, start, size) end
      return #after > 2 * MAX_PIECES and gaps or after
    end

    function algorithm.fresh(now, birth)
      return { level = 0, last = now, generation = birth, gaps = {}, record = {}, older = '' }
    end

    function algorithm.rebased(_, state, now, birth)
      return changed(state, { last = now, generation = birth, record = {}, rebased = true })
    end

    -- state.record { start, units, sunk, time, low, time, low, ... }: the busy period, and the lows from the fourth
    -- number on

    local function with_newest(state)
      local lows = { unpack(state.record, 4) }
      if #lows == 0 or lows[#lows - 1] < state.last then
        lows[#lows + 1], lows[#lows + 2] = state.last, state.level
      end
      return lows
    end

    local function lowered(lows, most)
      local after, highest = {}, 0
      for i = 1, #lows, 2 do
        local low = min(lows[i + 1], most)
        if low > highest then
          after[#after + 1], after[#after + 2] = lows[i], low
          highest = low
        end
      end
      return after
    end

    local function low_at(quota, level, left)
      if quota.slow_rate == quota.limit or level <= quota.burst_floor then return left end
      return left - quota.burst_floor
    end

    local function thinned(lows, now)
      while #lows > 2 * MAX_LOWS do
        local least, least_loss, before = 1, huge, 0
        for i = 1, #lows, 2 do
          local after = lows[i + 2] or now
          local loss = (lows[i + 1] - before) * (after - lows[i])
          if after >= lows[i] and loss < least_loss then least, least_loss = i, loss end
          before = lows[i + 1]
        end
        table.remove(lows, least)
        table.remove(lows, least)
      end
      return lows
    end

    -- The latest time that may have a booking in a queue of the length `left`.
    local function latest_slot(quota, lows, since, left)
      return #lows > 0 and min(lows[#lows - 1], since + floor(left / quota.limit)) or 0
    end

    local function ended(lows, latest, level, since)
      while #lows > 0 and lows[#lows - 1] >= latest do
        lows[#lows] = nil
        lows[#lows] = nil
      end
      if latest > since then lows[#lows + 1], lows[#lows + 2] = latest, level end
      return lows
    end

    local function record_after(quota, state, since, slot, left_now, left, scaled)
      local record = state.record
      if left_now <= 0 then
        return (slot > since or scaled > quota.burst_level) and { since, scaled, 0, slot, scaled } or {}
      end
      local start, units, lows = record[1] or state.last, record[2] or state.level, with_newest(state)
      local latest = max(slot, latest_slot(quota, lows, since, left_now))
      if since <= state.last and latest <= since then
        if #record == 0 then return record end
        return { record[1], record[2] + scaled, unpack(record, 3) }
      end
      if #record == 0 and state.level > quota.burst_level then start, lows = since, {} end
      lows = lowered(lows, low_at(quota, state.level, drained(quota, left, latest - slot)))
      lows = ended(lows, latest, drained(quota, left + scaled, latest - slot), since)
      return { start, units + scaled, record[3] or 0, unpack(thinned(lows, since)) }
    end

    local function is_hidden(quota, since, slot, left, scaled)
      return slot > since and left + scaled + quota.limit <= quota.burst_level
    end

    local function record_in_gap(quota, state, since, slot, left_now, below, scaled)
      local record, level, last = state.record, state.level, state.last
      if #record == 0 and level > quota.burst_level then
        return { ceil(last + level / quota.limit), level + scaled, 0 }
      end
      local start, units, lows, earlier = record[1] or last, record[2] or level, with_newest(state), {}
      local latest = max(slot, latest_slot(quota, lows, since, left_now))
      lows = lowered(lows, low_at(quota, level, left_now))
      while #earlier < #lows and lows[#earlier + 1] < slot do
        earlier[#earlier + 1], earlier[#earlier + 2] = lows[#earlier + 1], lows[#earlier + 2]
      end
      local from = #earlier + 1
      earlier = lowered(earlier, below)
      for i = from, #lows do earlier[#earlier + 1] = lows[i] end
      lows = ended(earlier, latest, drained(quota, left_now, latest - since), since)
      return { start, units + scaled, record[3] or 0, unpack(thinned(lows, since)) }
    end

    local function record_after_debit(quota, state, since, left, scaled)
      local is_unknown, level = #state.record == 0 and state.level > quota.burst_level, left + scaled
      local slot = is_unknown and since + floor(left / quota.limit) or since
      local record = record_after(quota, state, since, slot, left, drained(quota, left, slot - since), scaled)
      if #record == 0 and left <= quota.burst_level and quota.burst_level < level then
        return { since, level, 0, since, level }
      end
      return record
    end

    local function low_unrecorded(quota, state, slot, size, stop)
      local level, last, left = state.level, state.last, 0
      if slot > last then return level == stop and level or 0 end
      if level > quota.burst_level then return 0 end
      if slot == last then return level end
      if quota.slow_rate == quota.limit then left = size - (last - slot) * quota.limit end
      return max(min(left, level), 0)
    end

    local function low_since(quota, state, slot, below_at_slot, size, stop)
      local last, record, low = state.last, state.record, 0
      if #record == 0 then return low_unrecorded(quota, state, slot, size, stop) end
      local start, lows = record[1], with_newest(state)
      if slot < start then
        local left = quota.slow_rate == quota.limit and size - (max(start, lows[1]) - slot) * quota.limit or 0
        return max(min(left, lows[2]), 0)
      end
      for i = 1, #lows, 2 do
        if lows[i] == slot then return lows[i + 1] end
        if lows[i] > slot then
          if quota.slow_rate ~= quota.limit then return low end
          return max(low, min(lows[i + 1], min(low, below_at_slot) + size - (lows[i] - slot) * quota.limit))
        end
        low = lows[i + 1]
      end
      return #record > 3 and record[#record - 1] >= last and low or 0
    end

    local function lows_given_back(lows, slot, low, back)
      local most, count = huge, #lows
      for i = count - 1, 1, -2 do
        most = min(most, lows[i] >= slot and lows[i + 1] - back or low - back, lows[i + 1])
        lows[i + 1] = most
      end
      if count == 0 then return lows end
      local time, newest = lows[count - 1], max(lows[count], 0)
      lows[count], lows[count - 1] = nil, nil
      local after = lowered(lows, huge)
      after[#after + 1], after[#after + 2] = time, newest
      return after
    end

    -- versions

    function algorithm.of_version(quota, stored, older, stamp)
      local level, own_us, other_us = stored.level, period_in(quota.stamp), period_in(stamp)
      if own_us ~= other_us then level = ceil(level / other_us * quota.period_us) end
      local state = { level = min(level, quota.burst_level), last = stored.last, generation = anew(stored.generation) }
      return changed(state, { gaps = {}, record = {}, older = older })
    end

    function algorithm.merged(quota, own, other)
      local since = max(own.last, other.last)
      local left = drained(quota, own.level, since - own.last)
      local used = drained(quota, other.level, since - other.last)
      if used <= left then return changed(own, { older = other.older }) end
      local record, gaps = own.record, gaps_after(quota, own.gaps, since - own.last)
      if #record > 0 then record = record_after(quota, own, since, since, left, left, used - left) end
      return changed(own, { level = used, last = since, gaps = gaps, record = record, older = other.older })
    end

    local function older_reset_us(quota, older, now)
      local limit, last, level = limit_in(older), struct.unpack('<dd', older, 9)
      return last + ceil(level / (limit * (quota.slow_rate / quota.limit))) - now
    end

    function algorithm.wait(quota, state, now, cost, min_wait_us)
      local scaled, elapsed, wait_us = scaled_cost(quota.period_us, cost), now - state.last, min_wait_us
      local target = max(quota.burst_level - scaled, 0)
      if drained(quota, state.level, elapsed + min_wait_us) > target then
        wait_us = drain_wait(quota, state.level, elapsed, target)
      end
      return wait_us > min_wait_us and earliest_gap(quota, state.gaps, elapsed, scaled, wait_us, min_wait_us) or wait_us
    end

    function algorithm.book(quota, state, now, cost, wait_us, may_settle)
      local since, last, scaled = max(now, state.last), state.last, scaled_cost(quota.period_us, cost)
      if state.older ~= '' and older_reset_us(quota, state.older, now) <= 0 then state.older = '' end
      local level, slot = drained(quota, state.level, since - last), max(now + wait_us, since)
      local is_recorded = may_settle or #state.record > 0
      local taken, start = place_in_gap(quota, state, now, scaled, wait_us)
      if taken then
        local record, below = state.record, max(start - (slot - since) * quota.limit, 0)
        if is_recorded or is_hidden(quota, since, slot, below, scaled) then
          record = record_in_gap(quota, state, since, slot, level, below, scaled)
        end
        local gaps = gaps_without(quota, state.gaps, since - last, taken, start, scaled)
        return changed(state, { level = level, last = since, gaps = gaps, record = record })
      end
      local left = wait_us > 0 and drained(quota, state.level, slot - last) or level
      local booked = left + scaled + (slot - since) * quota.limit
      local record = state.record
      if is_recorded or is_hidden(quota, since, slot, left, scaled) then
        record = record_after(quota, state, since, slot, level, left, scaled)
      end
      local gaps = gaps_after(quota, state.gaps, since - last)
      return changed(state, { level = booked, last = since, gaps = gaps, record = record })
    end

    local function is_served(quota, start, size, elapsed, back, level)
      start, size = gap_at(quota, start, size, elapsed)
      local most = min(size, quota.burst_level)
      local later = max(start + size - back - most, 0) / quota.limit
      return most <= 0 or drained(quota, level, max(elapsed, 0) + later) <= quota.burst_level - most
    end

    local function opens_no_later(quota, start, size, elapsed, level)
      if quota.slow_rate == quota.limit then return true end
      start, size = gap_at(quota, start, size, elapsed)
      local most = min(size, quota.burst_level)
      local opens = max(start + most - quota.burst_level, 0) / quota.limit
      return most <= 0 or drained(quota, level, max(elapsed, 0) + opens) <= quota.burst_level - most
    end

    local function capped(quota, lows, slot, level, last)
      local most, count = huge, #lows
      for i = count - 1, 1, -2 do
        most = min(most, lows[i + 1], lows[i] >= slot and drained(quota, level, lows[i] - last) or lows[i + 1])
        lows[i + 1] = most
      end
      local time, newest = lows[count - 1], lows[count]
      lows[count], lows[count - 1] = nil, nil
      local after = lowered(lows, huge)
      after[#after + 1], after[#after + 2] = time, newest
      return after
    end

    local function lows_without_slot(quota, state, slot_us, level, rest)
      local last, slot, lows = state.last, floor(slot_us), { unpack(state.record, 4) }
      local is_any = slot_us ~= slot or quota.slow_rate ~= quota.limit
      if is_any and #lows > 0 and lows[#lows - 1] > slot_us then return capped(quota, lows, slot_us, level, last) end
      while #lows > 0 and lows[#lows - 1] >= slot_us do
        lows[#lows] = nil
        lows[#lows] = nil
      end
      local newest = lows[#lows - 1] or -huge
      if #state.record == 0 or (rest > 0 and newest >= slot) then return lows end
      local latest = rest > 0 and slot or max(min(slot, last + floor(level / quota.limit)), last)
      if rest > 0 or newest < latest then
        lows[#lows + 1] = latest
        lows[#lows + 1] = rest > 0 and rest or drained(quota, level, latest - last)
      end
      return lows
    end

    local function units_given_back(quota, state, base, slot, below_at_slot, start, stop, units)
      local gaps, lows, sunk = state.gaps, { unpack(state.record, 4) }, {}
      local low = low_since(quota, state, slot, below_at_slot, stop - start, stop)
      local back = min(units, low, state.level)
      if back <= 0 then return state.level, gaps, lows end
      for i = 1, #gaps, 2 do
        local is_above = gaps[i] >= stop
        if is_above and not is_served(quota, gaps[i], gaps[i + 1], base - state.last, back, state.level - back) then
          return state.level, gaps, lows
        end
      end
      for i = 1, #gaps, 2 do sunk[i], sunk[i + 1] = gaps[i] >= stop and gaps[i] - back or gaps[i], gaps[i + 1] end
      return state.level - back, gaps_after(quota, sunk, 0), lows_given_back(lows, slot, low, back)
    end

    local function slot_given_back(quota, state, base, bottom, start, stop, rest, slot_us)
      local gaps, lows, level, elapsed = state.gaps, { unpack(state.record, 4) }, state.level, base - state.last
      start = max(start, elapsed * quota.limit)
      if stop <= start or (quota.slow_rate ~= quota.limit and stop > level * (1 + NOISE)) then
        return level, gaps, lows
      end
      if stop < level then return level, with_gap(gaps, start, stop - start), lows end
      level = bottom
      while #gaps > 0 and gaps[#gaps - 1] + gaps[#gaps] >= level do
        local at, size = gaps[#gaps - 1], gaps[#gaps]
        if not opens_no_later(quota, at, size, elapsed, min(level, at)) then
          level = at + size
          break
        end
        level = min(level, at)
        gaps[#gaps] = nil
        gaps[#gaps] = nil
      end
      return level, gaps, lows_without_slot(quota, state, slot_us, level, rest)
    end

    function algorithm.give_back(quota, state, now, settled)
      local scaled, base, back = scaled_cost(quota.period_us, settled.cost), max(now, state.last), 0
      local units = scaled - (settled.actual > 0 and scaled_cost(quota.period_us, settled.actual) or 0)
      if units <= 0 then return state end
      local sunk, level, bottom, after, gaps, lows = state.record[3] or 0, state.level, nil, nil, nil, nil
      local slot = floor(settled.slot)
      local ahead, passed = slot - settled.since, state.last - settled.since
      local below = settled.place - sunk
      local is_own, is_even = slot == settled.slot, quota.slow_rate == quota.limit
      local stop = below + scaled - passed * quota.limit
      if is_own or is_even then stop = drained(quota, below, ahead) + scaled + (ahead - passed) * quota.limit end
      if slot > base then
        local start, rest = stop - units, 0
        bottom = drained(quota, below, passed)
        if units < scaled then
          bottom, rest = start, start - (slot - state.last) * quota.limit
        elseif is_own and not is_even then
          start = min(start, below - passed * quota.limit)
        end
        after, gaps, lows = slot_given_back(quota, state, base, bottom, start, stop, rest, settled.slot)
      else
        local below_at_slot = slot < settled.slot and drained(quota, below, ahead) or huge
        after, gaps, lows = units_given_back(quota, state, base, slot, below_at_slot, stop - scaled, stop, units)
        back = level - after
      end
      if #state.record == 0 and slot <= base and level <= quota.burst_level then
        local first = after > 0 and { state.last, after, back } or {}
        return changed(state, { level = after, gaps = gaps, record = first })
      end
      if #state.record == 0 then
        local hides = after > 0 and after < level and (slot <= base or units < scaled or after < bottom)
        local first = hides and { ceil(state.last + level / quota.limit), after, 0 } or {}
        return changed(state, { level = after, gaps = gaps, record = first })
      end
      local start, used = state.record[1], state.record[2]
      if settled.since >= start then used = used - units end
      if used <= 0 then return changed(state, { level = 0, gaps = {}, record = {} }) end
      return changed(state, { level = after, gaps = gaps, record = { start, used, sunk + back, unpack(lows) } })
    end

    function algorithm.debit(quota, state, now, units)
      local since, scaled = max(now, state.last), scaled_cost(quota.period_us, units)
      local left = drained(quota, state.level, since - state.last)
      local record = record_after_debit(quota, state, since, left, scaled)
      local gaps = gaps_after(quota, state.gaps, since - state.last)
      return changed(state, { level = left + scaled, last = since, gaps = gaps, record = record })
    end

    function algorithm.reset_us(quota, state, now)
      local own_us = max(state.last - now, 0) + drain_time(quota, drained(quota, state.level, now - state.last), 0)
      return state.older == '' and own_us or max(own_us, older_reset_us(quota, state.older, now))
    end

    local function units_at(quota, level)
      local units = floor((quota.burst_level - level) / quota.period_us)
      if level > quota.burst_level - units * quota.period_us then units = units - 1 end
      return max(units, 0)
    end

    function algorithm.most_at_once(quota, state, now)
      local elapsed, gaps = now - state.last, state.gaps
      local most = units_at(quota, drained(quota, state.level, elapsed))
      for i = 1, elapsed >= 0 and #gaps or 0, 2 do
        local start, size = gap_at(quota, gaps[i], gaps[i + 1], elapsed)
        if quota.burst_level - start < quota.period_us then break end -- gaps are in order
        local units = floor(min(size, quota.burst_level - start) / quota.period_us)
        local scaled = units * quota.period_us
        if units > 0 and not fits(quota, gaps[i], gaps[i + 1], elapsed, scaled) then units = units - 1 end
        most = max(most, units)
      end
      return most
    end

    function algorithm.at_end(_, state)
      return { level = state.level, last = state.last, gaps = {} }
    end

    function algorithm.pack(state)
      return struct.pack('<ddI', state.last, state.level, state.generation)
    end

    function algorithm.unpack(_, state, value, at)
      state.last, state.level, state.generation, at = struct.unpack('<ddI', value, at)
      return { state.level }, at
    end

    return algorithm
  end

  -- fixed_window: state.debit, state.runs { start, stop, count, start, stop, count, ... } -----------------------------

  local function fixed_window()
    local algorithm = {}

    local function index(quota, now)
      return floor(now / quota.period_us)
    end

    local function add_run(runs, start, stop, count)
      local size = #runs
      if start >= stop or count <= 0 then return end
      if size > 0 and runs[size - 1] == start and runs[size] == count then
        runs[size - 1] = stop
      else
        runs[size + 1], runs[size + 2], runs[size + 3] = start, stop, count
      end
    end

    local function count_at(runs, at)
      for i = 1, #runs, 3 do
        if runs[i] <= at and at < runs[i + 1] then return runs[i + 2] end
      end
      return 0
    end

    local function loss(runs, i)
      local count = max(runs[i + 2], runs[i + 5])
      local own = runs[i + 2] * (runs[i + 1] - runs[i])
      return count * (runs[i + 1] - runs[i]) - own - runs[i + 5] * (runs[i + 1] - runs[i + 3])
    end

    local function bounded(runs)
      while #runs > 3 * MAX_PIECES do
        local least, least_loss = 1, loss(runs, 1)
        for i = 4, #runs - 3, 3 do
          local lost = loss(runs, i)
          if lost < least_loss then least, least_loss = i, lost end
        end
        runs[least + 5] = max(runs[least + 2], runs[least + 5])
        for _ = 1, 3 do table.remove(runs, least + 1) end
      end
      return runs
    end

    local function replaced(runs, at, count, first)
      local after, adds = {}, true
      for i = 1, #runs, 3 do
        local start, stop = runs[i], runs[i + 1]
        if start < at then add_run(after, start < first and first or start, stop < at and stop or at, runs[i + 2]) end
        if stop > at then
          if adds then add_run(after, at, at + 1, count) end
          add_run(after, start > at and start or at + 1, stop, runs[i + 2])
          adds = false
        end
      end
      if adds then add_run(after, at, at + 1, count) end
      return after
    end

    local function with_count(runs, at, count, first)
      return bounded(replaced(runs, at, count, first))
    end

    local function fill(quota, runs, start, stop, count, units)
      local limit = snapped(quota, quota.limit)
      local free = max(limit - count, 0)
      if start >= stop or units <= 0 or free == 0 then
        add_run(runs, start, stop, count)
        return units
      end
      local full = min(floor(units / free), stop - start)
      add_run(runs, start, start + full, limit)
      local rest = snapped(quota, max(units - full * free, 0))
      if start + full == stop then return rest end
      add_run(runs, start + full, start + full + 1, snapped(quota, count + rest))
      add_run(runs, start + full + 1, stop, count)
      return 0
    end

    local function filled(quota, runs, units, at, stop)
      local after = {}
      steps = steps + PASS_STEPS * #runs
      for i = 1, #runs, 3 do
        local start, finish = runs[i], runs[i + 1]
        if start >= stop then break end
        if finish > at then
          if start > at then units = fill(quota, after, at, start, 0, units) end
          units = fill(quota, after, max(start, at), min(finish, stop), runs[i + 2], units)
          at = finish
        end
      end
      return after, fill(quota, after, at, stop, 0, units)
    end

    local function runs_with_debit(quota, state)
      if state.debit <= 0 then return state.runs end
      state.with_debit = state.with_debit or filled(quota, state.runs, state.debit, index(quota, state.last), huge)
      return state.with_debit
    end

    local function paid_back(quota, state, now)
      if state.debit <= 0 then return state end
      local base = max(now, state.last)
      local first = index(quota, base)
      local paid, left = filled(quota, state.runs, state.debit, index(quota, state.last), first + 1)
      local runs = with_count(state.runs, first, count_at(paid, first), first)
      return changed(state, { debit = left, runs = runs, last = base })
    end

    function algorithm.fresh(now, birth)
      return { debit = 0, runs = {}, last = now, generation = birth, gaps = {}, record = {}, older = '' }
    end

    function algorithm.rebased(quota, state, now, birth)
      local back, runs = index(quota, state.last) - index(quota, now), {}
      for i = 1, #state.runs, 3 do add_run(runs, state.runs[i] - back, state.runs[i + 1] - back, state.runs[i + 2]) end
      return changed(state, { runs = runs, last = now, generation = birth, rebased = true })
    end

    function algorithm.wait(quota, state, now, cost, min_wait_us)
      if cost > quota.limit then return huge end
      local most, runs = snapped(quota, snapped(quota, quota.limit) - snapped(quota, cost)), state.runs
      if state.debit > 0 then runs = runs_with_debit(quota, state) end
      local window = index(quota, max(now + min_wait_us, state.last))
      for i = 1, #runs, 3 do
        if window < runs[i] then break end
        if window < runs[i + 1] and runs[i + 2] > most then window = runs[i + 1] end
      end
      local wait_us = max(min_wait_us, window * quota.period_us - now)
      return (wait_us >= NEVER_US or window + 1 >= NEVER_US) and huge or wait_us
    end

    function algorithm.book(quota, state, now, cost, wait_us)
      if state.debit > 0 then paid_back(quota, state, now) end
      local taken, since, units = index(quota, now + wait_us), max(now, state.last), snapped(quota, cost)
      local runs, first = state.runs, index(quota, since)
      if #runs == 0 or runs[#runs - 1] <= first then
        runs = { taken, taken + 1, units }
      else
        runs = with_count(runs, taken, snapped(quota, count_at(runs, taken) + units), first)
      end
      return changed(without_what_is_over(quota, state), { last = since, runs = runs })
    end

    function algorithm.give_back(quota, state, now, settled)
      paid_back(quota, state, now)
      local base, place = max(now, state.last), settled.place
      local first, count = index(quota, base), count_at(state.runs, place)
      if place < first or count == 0 then return state end
      local after = replaced(state.runs, place, count_left(quota, count, settled.cost, settled.actual), first)
      if #after > 3 * MAX_PIECES then return state end
      local debit = debit_beside(quota, state.debit, count, settled)
      return paid_back(quota, changed(state, { debit = debit, last = base, runs = after }), base)
    end

    function algorithm.debit(quota, state, now, units, place)
      paid_back(quota, state, now)
      local base, runs = max(now, state.last), state.runs
      local first = index(quota, base)
      units = snapped(quota, units)
      if place > first then
        local count = count_at(runs, place)
        local total = snapped(quota, count + units)
        runs = with_count(runs, place, total, first)
        units = snapped(quota, max(total - max(snapped(quota, quota.limit), count), 0))
      end
      local debit = min(snapped(quota, state.debit + units), MAX_DEBIT / 2)
      return paid_back(quota, changed(state, { debit = debit, last = base, runs = runs }), base)
    end

    function algorithm.reset_us(quota, state, now)
      local runs = runs_with_debit(quota, state)
      local over = #runs > 0 and runs[#runs - 1] * quota.period_us or 0
      local own_us = over > now and max(over, state.last) - now or 0
      if state.older == '' then return own_us end
      return max(own_us, algorithm.reset_us(quota, of_older(quota, state.older), now))
    end

    -- versions

    function algorithm.of_version(quota, stored, older)
      local state = { debit = stored.debit, gaps = {}, record = {} }
      local at = index(quota, stored.last)
      local count = count_at(stored.runs, at)
      state.runs = count > 0 and { at, at + 1, count } or {}
      return changed(state, { last = stored.last, generation = anew(stored.generation), older = older })
    end

    function algorithm.merged(quota, own, other)
      if own.last > other.last then return changed(own, { older = other.older }) end
      local at = index(quota, other.last)
      local count = count_at(other.runs, at)
      if at > index(quota, own.last) then count = snapped(quota, count + count_at(own.runs, at)) end
      local runs = with_count(own.runs, at, count, at)
      return changed(own, { debit = other.debit, runs = runs, last = other.last, older = other.older })
    end

    function algorithm.most_at_once(quota, state, now)
      local current = index(quota, now)
      if current < index(quota, state.last) then return 0 end
      return whole_units(quota, count_at(runs_with_debit(quota, state), current))
    end

    function algorithm.at_end(quota, state)
      local runs = runs_with_debit(quota, state)
      if #runs == 0 then return state end
      local stop = runs[#runs - 1]
      return { debit = 0, runs = { -huge, stop - 1, quota.limit, stop - 1, stop, runs[#runs] }, last = state.last }
    end

    function algorithm.pack(state)
      return struct.pack('<d', state.debit) .. packed_numbers(state.runs)
    end

    function algorithm.unpack(quota, state, value, at, most)
      state.debit, at = struct.unpack('<d', value, at)
      if not is_finite({ state.debit }) then error('not finite') end
      local count, first = (#value - at + 1) / 24, max(most, 2) - 1
      if count <= first + 1 or count % 1 ~= 0 then
        state.runs = numbers_from(value, at, 3)
      else
        state.runs, at = numbers_at(value, at, 3 * first)
        local start, stop = struct.unpack('<d', value, at), struct.unpack('<d', value, #value - 15)
        add_run(state.runs, start, stop, snapped(quota, quota.limit))
      end
      return state.runs, #value + 1
    end

    return algorithm
  end

  -- rolling_window: state.full_until, state.debit, state.parts { part, count, part, count, ... } ----------------------

  local function rolling_window()
    local algorithm = {}

    local function index(quota, now)
      return floor(now / quota.part_us)
    end

    local function add(parts, part, count)
      parts[#parts + 1], parts[#parts + 2] = part, count
    end

    local function first_fit(quota, parts, first, units, from)
      local most, buckets = snapped(quota, snapped(quota, quota.limit) - units), quota.buckets
      local total, oldest, fit = 0, (from or 1) + 1, first
      if (parts[#parts - 1] or first) <= first then
        for i = #parts, 2, -2 do
          if parts[i - 1] < first - buckets then break end
          total = snapped(quota, total + parts[i])
          if total > most then return parts[i - 1] + buckets + 1 end
        end
        return first
      end
      for i = oldest, #parts, 2 do
        total = snapped(quota, total + parts[i])
        if total > most then
          local without = snapped(quota, total - parts[oldest])
          while oldest < i and without > most do
            total, oldest = without, oldest + 2
            without = snapped(quota, total - parts[oldest])
          end
          if fit < parts[i - 1] - buckets then break end
          if parts[i - 1] <= parts[oldest - 1] + buckets then fit = max(fit, parts[oldest - 1] + buckets + 1) end
        end
      end
      return fit
    end

    local function highest(quota, parts, at)
      local total, most, oldest, buckets = 0, 0, 2, quota.buckets
      for i = 2, #parts, 2 do
        local part = parts[i - 1]
        if part > at + buckets then break end
        if part < at - buckets then
          oldest = oldest + 2
        else
          while part > at and parts[oldest - 1] < part - buckets do
            total, oldest = snapped(quota, total - parts[oldest]), oldest + 2
          end
          total = snapped(quota, total + parts[i])
          most = max(most, total)
        end
      end
      return most
    end

    local function with_units(quota, parts, at, units)
      local after, count, adds = {}, 0, true
      for i = 1, #parts, 2 do
        local part = parts[i]
        if adds and part >= at then
          if part == at then units = snapped(quota, parts[i + 1] + units) end
          after[count + 1], after[count + 2] = at, units
          count, adds = count + 2, false
        end
        if part ~= at then
          after[count + 1], after[count + 2] = part, parts[i + 1]
          count = count + 2
        end
      end
      if adds then add(after, at, units) end
      return after
    end

    local function paid_in_turn(quota, parts, units, at, stop)
      steps = steps + 3 * PASS_STEPS * #parts
      local limit, length, total, number, after = snapped(quota, quota.limit), quota.buckets + 1, 0, 1, {}
      for i = 1, #parts, 2 do
        if parts[i] >= at - quota.buckets then
          add(after, parts[i], parts[i + 1])
          total = snapped(quota, total + parts[i + 1])
        end
      end
      while true do
        local fit = min(snapped(quota, max(limit - total, 0)), units)
        if fit > 0 then
          total, units = snapped(quota, total + fit), snapped(quota, max(units - fit, 0))
          if after[#after - 1] == at then after[#after] = snapped(quota, after[#after] + fit) else add(after, at, fit) end
        end
        local windows = total == limit and ceil(units / limit) - 1 or 0
        if at + windows * length > stop then windows = floor((stop - at) / length) end
        if windows > 0 then
          for i = number, #after, 2 do after[i] = after[i] + windows * length end
          at, units = at + windows * length, snapped(quota, max(units - windows * limit, 0))
        end
        if units <= 0 or number > #after or after[number] + length > stop then break end
        at, total = after[number] + length, snapped(quota, max(total - after[number + 1], 0))
        number = number + 2
        if number > #after then total = 0 end
      end
      local left = {}
      for i = number, #after do left[i - number + 1] = after[i] end
      return left, units, at
    end

    local function paid(quota, parts, units, at, stop)
      local limit, least, payments = snapped(quota, quota.limit), snapped(quota, 1e-6), 0
      local most = min(floor(PARTS_OF_PAYMENTS / max(#parts / 2, 1)), PAYMENTS)
      local from, ahead = 1, 1 -- the first parts that count at `at`, and that lie ahead of it
      while at <= stop and units > 0 do
        steps = steps + 3 * PASS_STEPS * #parts
        while from <= #parts and parts[from] < at - quota.buckets do from = from + 2 end
        while ahead <= #parts and parts[ahead] <= at do ahead = ahead + 2 end
        if ahead > #parts then return paid_in_turn(quota, parts, units, at, stop) end
        local alone_until = parts[ahead] - quota.buckets - 1
        if payments >= most then
          at = parts[#parts - 1]
        elseif at <= alone_until then
          local before, others = {}, parts
          for i = from, ahead - 1 do before[i - from + 1] = parts[i] end
          parts, units, at = paid_in_turn(quota, before, units, at, min(alone_until, stop))
          for i = ahead, #others do parts[#parts + 1] = others[i] end
          from, ahead = 1, 1
          if units > 0 then at, payments = alone_until + 1, payments + 1 end
        else
          at = first_fit(quota, parts, at, least, from)
          local fit = min(snapped(quota, max(limit - highest(quota, parts, at), 0)), units)
          if at <= stop and fit > 0 then
            parts, units = with_units(quota, parts, at, fit), snapped(quota, max(units - fit, 0))
          end
          payments = payments + 1
        end
      end
      return parts, units, at
    end

    local function bounded(quota, state, full_until, parts, first)
      if full_until <= first then full_until = 0 end
      local after, from = {}, 1
      while from <= #parts and parts[from] < max(first, full_until) - quota.buckets do from = from + 2 end
      local most = MAX_PIECES + quota.buckets
      if #parts - from + 1 > 2 * most then
        full_until = parts[#parts - 1 - 2 * most] + quota.buckets + 1
        while from <= #parts and parts[from] < full_until - quota.buckets do from = from + 2 end
      end
      if from == 1 then after = parts end
      for i = from, from > 1 and #parts or 0 do after[i - from + 1] = parts[i] end
      return changed(state, { full_until = full_until, parts = after })
    end

    local function with_debit(quota, state)
      if state.debit <= 0 then return state.full_until, state.parts end
      if not state.with_debit then
        local at = max(index(quota, state.last), state.full_until)
        local parts, _, last = paid(quota, state.parts, state.debit, at, huge)
        state.with_debit = { last, parts }
      end
      return unpack(state.with_debit)
    end

    local function paid_back(quota, state, now)
      if state.debit <= 0 then return state end
      local base, parts, left = max(now, state.last), nil, nil
      local at = max(index(quota, state.last), state.full_until)
      parts, left = paid(quota, state.parts, state.debit, at, index(quota, base))
      changed(state, { debit = left, last = base })
      return bounded(quota, state, state.full_until, parts, index(quota, base))
    end

    function algorithm.fresh(now, birth)
      local state = { full_until = 0, debit = 0, parts = {}, last = now, generation = birth }
      return changed(state, { gaps = {}, record = {}, older = '' })
    end

    function algorithm.rebased(quota, state, now, birth)
      local back, parts = index(quota, state.last) - index(quota, now), {}
      for i = 1, #state.parts, 2 do add(parts, state.parts[i] - back, state.parts[i + 1]) end
      local full_until = max(state.full_until - back, 0)
      return changed(state, { full_until = full_until, parts = parts, last = now, generation = birth, rebased = true })
    end

    function algorithm.wait(quota, state, now, cost, min_wait_us)
      if cost > quota.limit then return huge end
      local full_until, parts = state.full_until, state.parts
      if state.debit > 0 then full_until, parts = with_debit(quota, state) end
      local first = max(index(quota, max(now + min_wait_us, state.last)), full_until)
      local part = first_fit(quota, parts, first, snapped(quota, cost))
      local wait_us = max(min_wait_us, part * quota.part_us - now)
      return (wait_us >= NEVER_US or part + quota.buckets + 1 >= NEVER_US) and huge or wait_us
    end

    function algorithm.book(quota, state, now, cost, wait_us)
      if state.debit > 0 then paid_back(quota, state, now) end
      local taken, since = index(quota, now + wait_us), max(now, state.last)
      local parts = with_units(quota, state.parts, taken, snapped(quota, cost))
      without_what_is_over(quota, state)
      return bounded(quota, changed(state, { last = since }), state.full_until, parts, index(quota, since))
    end

    function algorithm.give_back(quota, state, now, settled)
      paid_back(quota, state, now)
      local base, debit, parts, after, size = max(now, state.last), state.debit, state.parts, {}, 0
      for i = 1, #parts, 2 do
        local count = parts[i + 1]
        if parts[i] == settled.place then
          debit = debit_beside(quota, debit, count, settled)
          count = count_left(quota, count, settled.cost, settled.actual)
        end
        if count > 0 then
          after[size + 1], after[size + 2] = parts[i], count
          size = size + 2
        end
      end
      bounded(quota, changed(state, { debit = debit, last = base }), state.full_until, after, index(quota, base))
      return paid_back(quota, state, base)
    end

    function algorithm.debit(quota, state, now, units, place)
      paid_back(quota, state, now)
      local base, limit, parts, full_until = max(now, state.last), quota.limit, state.parts, state.full_until
      local first = index(quota, base)
      limit, units = snapped(quota, limit), snapped(quota, units)
      if place > first then
        local most = highest(quota, parts, place)
        parts = with_units(quota, parts, place, units)
        units = snapped(quota, max(snapped(quota, most + units) - max(limit, most), 0))
      elseif place < first and place >= first - quota.buckets and full_until <= first then
        local fit = min(snapped(quota, max(limit - highest(quota, parts, first), 0)), units)
        if fit > 0 then parts = with_units(quota, parts, place, fit) end
        units = snapped(quota, max(units - fit, 0))
      end
      local debit = min(snapped(quota, state.debit + units), MAX_DEBIT / 2)
      bounded(quota, changed(state, { debit = debit, last = base }), full_until, parts, first)
      return paid_back(quota, state, base)
    end

    function algorithm.reset_us(quota, state, now)
      local full_until, parts = with_debit(quota, state)
      local over = max(full_until, #parts > 0 and parts[#parts - 1] + quota.buckets + 1 or 0) * quota.part_us
      local own_us = over > now and max(over, state.last) - now or 0
      if state.older == '' then return own_us end
      return max(own_us, algorithm.reset_us(quota, of_older(quota, state.older), now))
    end

    -- versions

    function algorithm.of_version(quota, stored, older)
      local state = { debit = stored.debit, gaps = {}, record = {}, parts = {} }
      local at, parts = index(quota, stored.last), stored.parts
      for i = 1, #parts, 2 do
        if parts[i] <= at then add(state.parts, parts[i], parts[i + 1]) end
      end
      state.full_until = min(stored.full_until, at + 1 + quota.buckets)
      return changed(state, { last = stored.last, generation = anew(stored.generation), older = older })
    end

    function algorithm.merged(quota, own, other)
      if own.last > other.last then return changed(own, { older = other.older }) end
      local parts, used, first, i, after = own.parts, other.parts, index(quota, own.last) + 1, 1, {}
      for j = 1, #parts, 2 do
        local part, count = parts[j], parts[j + 1]
        if part >= first then
          while used[i] and used[i] < part do
            add(after, used[i], used[i + 1])
            i = i + 2
          end
          local beside = 0
          if used[i] == part then beside, i = used[i + 1], i + 2 end
          add(after, part, snapped(quota, beside + count))
        end
      end
      for j = i, #used, 2 do add(after, used[j], used[j + 1]) end
      changed(own, { debit = other.debit, last = other.last, older = other.older })
      return bounded(quota, own, max(own.full_until, other.full_until), after, index(quota, other.last))
    end

    function algorithm.most_at_once(quota, state, now)
      local current, full_until, parts = index(quota, now), with_debit(quota, state)
      if current < max(full_until, index(quota, state.last)) then return 0 end
      return whole_units(quota, highest(quota, parts, current))
    end

    function algorithm.at_end(quota, state)
      local full_until, parts = with_debit(quota, state)
      local latest = parts[#parts - 1] or 0
      return { full_until = max(full_until, latest), debit = 0, parts = parts, last = state.last }
    end

    function algorithm.pack(state)
      return struct.pack('<dd', state.full_until, state.debit) .. packed_numbers(state.parts)
    end

    function algorithm.unpack(quota, state, value, at, most)
      state.full_until, state.debit, at = struct.unpack('<dd', value, at)
      local stop, others = #value, (#value - at + 1) / 16 - most - quota.buckets
      if most == 0 and others % 1 == 0 then
        value = string.sub(value, 1, at - 1 + 16 * (quota.buckets + 1))
      elseif others > 0 and others % 1 == 0 then
        local last = struct.unpack('<d', value, at + 16 * (others - 1))
        state.full_until, at = max(state.full_until, last + quota.buckets + 1), at + 16 * others
      end
      if not is_finite({ state.full_until, state.debit }) then error('not finite') end
      state.parts = numbers_from(value, at, 2)
      return state.parts, stop + 1
    end

    return algorithm
  end

  -- packed ------------------------------------------------------------------------------------------------------------

  local algorithms = {}

  local function algorithm_of(quota)
    if not algorithms[quota.kind] then
      algorithms[quota.kind] = ({ [BUCKET] = token_bucket, [FIXED] = fixed_window, [ROLLING] = rolling_window })[quota.kind]()
    end
    return algorithms[quota.kind]
  end

  -- The value of a window, and the value of the other version in it; the core begins at `at`.
  local function without_older(quota, value, at)
    local fixed, each = 8, 24
    if quota.kind == ROLLING then fixed, each = 16, 16 end
    if (#value - at + 1 - fixed) % each == 0 then return value, '' end
    local size = struct.unpack('<I', value, #value - 3)
    local stop = #value - 4 - size
    if size == 0 or stop < at - 1 + fixed then error('cut short') end
    return string.sub(value, 1, stop), string.sub(value, stop + 1, -5)
  end

  local function is_version(quota, value)
    if quota.kind ~= BUCKET then
      local stamp, size = quota.stamp, #quota.stamp
      return string.sub(value, 1, 1) == string.sub(stamp, 1, 1) and string.sub(value, 6, size) == string.sub(stamp, 6)
    end
    if #value < PLAIN_SIZE then return false end
    local last, level = struct.unpack('<dd', value, 9)
    return period_in(value) > 0 and is_finite({ last, level })
  end

  -- Whether takes can leave such a core of a window: places are whole and in order, and each has units.
  local function has_places(quota, state)
    if quota.kind == BUCKET then return true end
    local debit, full_until, parts, runs, stop = state.debit, state.full_until or 0, state.parts, state.runs, -NEVER_US
    if not (debit >= 0 and debit < MAX_DEBIT and math.abs(state.last) < 2 * NEVER_US) then return false end
    if full_until % 1 ~= 0 or not (math.abs(full_until) < NEVER_US) then return false end
    for i = 1, parts and #parts or 0, 2 do
      local part, count = parts[i], parts[i + 1]
      if not (part > stop and part % 1 == 0 and count > 0 and count < huge) then return false end
      stop = part
    end
    for i = 1, runs and #runs or 0, 3 do
      local start, finish, count = runs[i], runs[i + 1], runs[i + 2]
      if not (start >= stop and finish > start and count > 0 and count < huge) then return false end
      if start % 1 ~= 0 or finish % 1 ~= 0 then return false end
      stop = finish
    end
    return stop < NEVER_US
  end

  local function unpacked(quota, value, most)
    local state, core, at = { gaps = {}, record = {}, older = '' }, nil, #quota.stamp + 1
    if quota.kind ~= BUCKET then
      state.last, state.generation, at = struct.unpack('<dd', value, at)
      value, state.older = without_older(quota, value, at)
    end
    core, at = quota.algorithm.unpack(quota, state, value, at, most)
    if not has_places(quota, state) then return nil end
    if at <= #value then
      local gaps, parts
      gaps, parts, at = struct.unpack('<HB', value, at)
      state.gaps, at = numbers_at(value, at, 2 * min(gaps, most))
      at = at + 16 * max(gaps - most, 0)
      state.record, at = numbers_at(value, at, parts > 0 and 2 * parts + 1 or 0)
      state.older = string.sub(value, at)
    end
    local whole = is_finite({ state.last, state.generation }) and is_finite(state.gaps) and is_finite(state.record)
    if quota.kind == BUCKET then whole = whole and is_finite(core) end
    return whole and (state.older == '' or is_version(quota, state.older)) and state or nil
  end

  local function unpacked_version(quota, value)
    local stored = is_version(quota, value) and unpacked(quota, value, 0)
    if not stored then return nil end
    local carried, size = stored.older, #quota.stamp
    local other = string.sub(value, 1, #value - #carried)
    if carried ~= '' and quota.kind ~= BUCKET then other = string.sub(other, 1, -5) end
    local made = quota.algorithm.of_version(quota, stored, other, string.sub(value, 1, size))
    if string.sub(carried, 1, size) ~= quota.stamp then return made end
    local own = unpacked(quota, carried, most_pieces)
    return own and quota.algorithm.merged(quota, own, made)
  end

  of_older = function(quota, older)
    local whole, state = pcall(unpacked, quota, older, 1)
    return whole and state or quota.algorithm.fresh(0, 0)
  end

  local function state_in(quota, value)
    if not value then return nil end
    if string.sub(value, 1, #quota.stamp) == quota.stamp then return unpacked(quota, value, most_pieces) end
    return unpacked_version(quota, value)
  end

  local function packed(quota, state)
    local generation, gaps, record = state.generation, state.gaps, state.record
    local head = quota.stamp
    if quota.kind ~= BUCKET then head = head .. struct.pack('<dd', state.last, generation) end
    local value = head .. quota.algorithm.pack(state)
    if #gaps == 0 and #record == 0 and state.older == '' then return value end
    if quota.kind ~= BUCKET then return value .. state.older .. struct.pack('<I', #state.older) end
    local counts = struct.pack('<HB', #gaps / 2, #record > 0 and (#record - 1) / 2 or 0)
    return value .. counts .. packed_numbers(gaps) .. packed_numbers(record) .. state.older
  end

  -- kinds -------------------------------------------------------------------------------------------------------------

  local function current(quota, state, now, birth)
    local generation = birth % GENERATIONS
    if not state then return quota.algorithm.fresh(now, generation) end
    if now < state.last - quota.period_us then return quota.algorithm.rebased(quota, state, now, generation) end
    return state
  end

  -- take --------------------------------------------------------------------------------------------------------------

  -- A charge is a table { quota, key, cost, birth, state, how many numbers that has }.
  local function next_charge(at)
    local number, charge = nil, {}
    number, charge.cost, at = struct.unpack('<Hd', actions, at)
    charges_done = charges_done + 1
    charge.quota, charge.key, charge.birth = quota_of(number), KEYS[charges_done], births + charges_done
    charge.quota.algorithm = algorithm_of(charge.quota)
    local value = read(charge.key)
    reply[charges_done + 1] = value
    steps = steps + CHARGE_STEPS + (value and #value / BYTES_OF_A_STEP or 0)
    local whole, state = pcall(state_in, charge.quota, value)
    charge.numbers = 0
    if whole and state then
      charge.state, charge.numbers = state, #state.gaps + #state.record + #(state.runs or state.parts or {})
      if (state.debit or 0) > 0 then steps = steps + DEBIT_LOOKS * PASS_STEPS * charge.numbers end
    end
    return charge, at
  end

  local function save(charge, state)
    local meaning_us = charge.quota.algorithm.reset_us(charge.quota, state, now)
    write(charge.key, packed(charge.quota, state), meaning_us)
  end

  local function longest_wait(charges, max_wait_us, min_wait_us)
    local longest = min_wait_us
    for _, charge in ipairs(charges) do
      local wait_us = huge
      if charge.cost <= charge.quota.most or max_wait_us > 0 then
        wait_us = charge.quota.algorithm.wait(charge.quota, charge.state, now, charge.cost, min_wait_us)
      end
      longest = max(longest, wait_us)
      steps = steps + 1 + PASS_STEPS * charge.numbers
    end
    return longest
  end

  local function looks(charge)
    local state = charge.state
    local pieces = state.runs and #state.runs / 3 or state.parts and #state.parts / 2 or 0
    return 1 + floor(((state.debit or 0) > 0 and DEBIT_LOOKS or 1) * pieces / PIECES_OF_A_LOOK)
  end

  local function common_wait(charges, wait_us)
    local looked, agreeing, number, ends = 0, 0, 0, {}
    repeat
      local charge = charges[number % #charges + 1]
      local own_us = charge.quota.algorithm.wait(charge.quota, charge.state, now, charge.cost, wait_us)
      agreeing = own_us == wait_us and agreeing + 1 or 1
      wait_us, looked, number = own_us, looked + looks(charge), number + 1
      steps = steps + LOOK_STEPS + (charge.quota.kind == BUCKET and 0 or PASS_STEPS * charge.numbers)
    until agreeing == #charges or wait_us == huge or looked >= MAX_LOOKS
    if agreeing == #charges or wait_us == huge then return wait_us end
    for i, charge in ipairs(charges) do
      local state = charge.quota.algorithm.at_end(charge.quota, charge.state)
      ends[i] = { quota = charge.quota, cost = charge.cost, state = state, numbers = 0 }
    end
    return longest_wait(ends, huge, wait_us)
  end

  local function partial_cost(charges)
    local cost = charges[1].cost
    local most = cost
    for _, charge in ipairs(charges) do
      most = min(most, charge.quota.algorithm.most_at_once(charge.quota, charge.state, now))
      steps = steps + PASS_STEPS * charge.numbers
    end
    return max(most, min(cost, 1))
  end

  local function take(at, action)
    local max_wait_us, count, charges, may_settle = nil, nil, {}, action > MAY_SETTLE
    max_wait_us, count, at = struct.unpack('<dH', actions, at)
    most_pieces = min(floor(PIECES_OF_TAKE / count), MAX_PIECES)
    for i = 1, count do
      charges[i], at = next_charge(at)
      charges[i].state = current(charges[i].quota, charges[i].state, now, charges[i].birth)
    end
    if action % MAY_SETTLE == 2 then
      local cost = partial_cost(charges)
      for _, charge in ipairs(charges) do charge.cost = cost end
    end
    local wait_us = longest_wait(charges, max_wait_us, 0)
    local waits = wait_us > 0 and wait_us <= max_wait_us and wait_us < huge
    if waits and count > 1 then wait_us = common_wait(charges, wait_us) end
    local allowed = wait_us <= max_wait_us and wait_us < huge
    for _, charge in ipairs(charges) do
      if allowed then
        local quota, state = charge.quota, charge.state
        if charge.cost > 0 then
          save(charge, quota.algorithm.book(quota, state, now, charge.cost, wait_us, may_settle))
        end
      elseif charge.state.rebased and max_wait_us >= 0 then
        save(charge, charge.state)
      end
    end
    verdicts[#verdicts + 1] = allowed and '1' or '0'
    return at
  end

  -- settle ------------------------------------------------------------------------------------------------------------

  local function settled_state(settled)
    local quota, algorithm = settled.quota, settled.quota.algorithm
    if settled.units == 0 or (not settled.state and settled.units > 0) then return nil end
    local state = current(quota, settled.state, now, settled.birth)
    local is_there = state.generation == settled.generation and settled.since <= state.last
    if settled.units < 0 then
      return algorithm.debit(quota, state, now, -settled.units, is_there and settled.place or -huge)
    end
    return is_there and algorithm.give_back(quota, state, now, settled) or nil
  end

  local function settle(at)
    local _, count, done = nil, nil, false
    _, count, at = struct.unpack('<dH', actions, at)
    most_pieces = min(floor(PIECES_OF_TAKE / count), MAX_PIECES)
    for _ = 1, count do
      local settled
      settled, at = next_charge(at)
      settled.actual, settled.since, settled.generation, settled.place, settled.slot, at =
        struct.unpack('<ddddd', actions, at)
      settled.units = settled.cost - settled.actual
      local after = settled_state(settled)
      if after then
        steps = steps + (settled.units < 0 and 3 or 1) * PASS_STEPS * settled.numbers
        save(settled, after)
        done = true
      end
    end
    verdicts[#verdicts + 1] = done and '1' or '0'
    return at
  end

  local function reset(at)
    local _, charges = struct.unpack('<dH', actions, at)
    for _ = 1, charges do
      charges_done = charges_done + 1
      redis.call('DEL', KEYS[charges_done])
      last_key = nil
      reply[charges_done + 1] = false
    end
    steps = steps + charges
    verdicts[#verdicts + 1] = '1'
    return at + 10 + charges * 10
  end

  local carry_out

  -- Carry out the action that follows the operation at `at` once. The value of its key is d the time until which it
  -- counts, d token and, if it is answered again (mode 1), d the time, d the first birth (below 0: a debit), and for
  -- each charge I length and the value that it had before, and then for each its quota, as in ARGV[1], and of a debit
  -- d cost, d actual. It is written if the action is done, or is a settlement. A redemption (a take that writes nothing)
  -- and a settlement are refused after another one's (mode 0). Mode 2 is a settlement that forgets the operation of a
  -- take, whose key is the next one. No operation is done from until_us on, unless that is 0.
  local function once(at)
    local mode, ttl_us, length, until_us, token, start = struct.unpack('<HdHdd', actions, at + 1)
    local action, _, max_wait_us, charges = struct.unpack('<BHdH', actions, start)
    local is_take = action ~= 3
    local is_redemption = is_take and max_wait_us < 0
    local key, forgotten = KEYS[charges_done + 1], mode == 2 and KEYS[charges_done + 2]
    for _ = 1, forgotten and 2 or 1 do
      charges_done = charges_done + 1
      reply[charges_done + 1] = false
    end
    local number = charges_done
    local record, counts_until, owner = redis.pcall('GET', key), 0, nil
    if type(record) == 'string' and #record >= 16 then counts_until, owner = struct.unpack('<dd', record) end
    local is_new = now >= counts_until
    local is_first = is_new and (until_us == 0 or now < until_us)
    steps = steps + CHARGE_STEPS
    if is_redemption then
      carry_out(action, start)
      verdicts[#verdicts] = (is_first or (not is_new and owner == token)) and '1' or '0'
    elseif is_first then
      local is_plain = is_take and action % MAY_SETTLE == 1
      local is_left = not is_plain or take_plain(1, max_wait_us, charges, start + 13, action > MAY_SETTLE) > 0
      if is_left then carry_out(action, start) end
    else
      for i = 1, charges do reply[number + i + 1] = false end
      charges_done = charges_done + charges
      if mode == 1 then reply[number + 1], steps = record, steps + #record / BYTES_OF_A_STEP end
      verdicts[#verdicts + 1] = mode == 1 and '2' or '0'
      return start + length
    end
    if not is_take then verdicts[#verdicts] = '1' end -- for the first time, whether it changed anything or not
    if forgotten and is_first then redis.call('DEL', forgotten) end
    if is_first and verdicts[#verdicts] == '1' then
      counts_until = max(now + ttl_us, until_us)
      local values = { struct.pack('<dd', counts_until, token) }
      if mode == 1 then values[2] = struct.pack('<dd', now, (births + number + 1) * (is_take and 1 or -1)) end
      for i = 1, mode == 1 and charges or 0 do
        local value = reply[number + i + 1]
        if type(value) ~= 'string' then value = '' end
        values[i + 2] = struct.pack('<I', #value) .. value
        local charge = start + 13 + (is_take and 10 or 50) * (i - 1)
        local quota = struct.unpack('<H', actions, charge)
        local units = is_take and '' or actions:sub(charge + 2, charge + 17)
        values[charges + i + 2] = ARGV[1]:sub((quota - 1) * QUOTA_SIZE + 1, quota * QUOTA_SIZE) .. units
      end
      local value = table.concat(values)
      steps = steps + #value / BYTES_OF_A_STEP
      redis.call('SET', key, value, 'PX', ttl_text(ceil((counts_until - now) / 1000)))
    end
    return start + length
  end

  carry_out = function(action, at)
    if action == 5 then return once(at) end
    if action == 4 then return reset(at + 3) end
    if action == 3 then return settle(at + 3) end
    return take(at + 3, action)
  end
  return carry_out
end

local carry_out
local at = 1
while at <= #actions and steps < MAX_STEPS do
  local action, count, max_wait_us, charges, after = struct.unpack('<BHdH', actions, at)
  local is_take = action % MAY_SETTLE == 1 and max_wait_us >= 0
  if action == 5 then count = 1 end
  if is_take then -- other actions move the position themselves
    local size, equal = 13 + 10 * charges, count
    local packed = string.sub(actions, at, at + size - 1)
    after = at + size
    while string.sub(actions, after, after + size - 1) == packed do
      after, count = after + size, count + equal
    end
  end
  while count > 0 and steps < MAX_STEPS do
    if is_take then count = take_plain(count, max_wait_us, charges, at + 13, action > MAY_SETTLE) end
    if count > 0 and steps < MAX_STEPS then
      carry_out = carry_out or general_way()
      local stop = carry_out(action, at)
      if not is_take then after = stop end
      count = count - 1
    end
  end
  at = after
end

reply[1] = string.format('%s%.0f %.0f %s', ARGV[6], now, steps, table.concat(verdicts))
return reply
