-- Rate limiting and pacing by token buckets (leaky buckets as meters), fixed and rolling windows: a list of takes,
-- each all or nothing, and of settlements, carried out in one call.
--
-- The functions are those of the modules in algorithms/: same names, same order, same operations on doubles, so that
-- both give answers equal to the bit. All reads of a take come before its writes; a refused take writes nothing.
--
-- KEYS     one string key for each charge, in the order of the takes; all in one slot on a cluster
-- ARGV[1]  the distinct quotas, packed: for each  B kind, f period_us, d period_us, d limit, d most, and then
--          for a token bucket (1)    d slow, d cap, d line
--          for a fixed window (2)    d 0, d 0, d 0
--          for a rolling window (3)  d buckets, d part_us, d 0
-- ARGV[2]  what to do, packed: for each
--          equal takes    B 1, or B 2 for a best effort, H how many of them, on keys that follow one another,
--                         d max_wait_us (-1: look, but take nothing), H charges,
--                         or B 5, to wait as long as it takes, with d soonest_us, the least wait, in that place,
--                         and for each charge  H number of the quota, from 1, d cost
--          a settlement   B 3, H 1, d id, H charges, and for each charge
--                         H number of the quota, d charged, d actual, d since_us, d era, d place,
--                         H length and the value before it was booked, H length and the value after, both without
--                         ids, or 0 and 0: if nothing has changed since, all is put back as it was before
--          a reset        B 4, H 1, d 0, H charges, and for each charge  H number of the quota, d 0
-- ARGV[3]  the time in microseconds since the epoch, or '' for the server's own
-- ARGV[4]  the least time to live of a key, in milliseconds
-- ARGV[5]  a mark of this call, to tell its reply from others
--
-- A value is packed: B format, f period_us, d last, H era, and then
--          of a token bucket (format 1)    d level
--          of a fixed window (format 2)    d window, d count
--          of a rolling window (format 3)  H buckets, H parts, and for each  d part, d count
-- and, where there are any, B holes, B ids, for each hole d, d, and for each id d. What has another format, or was
-- written under another period, counts as never used.
--
-- Reply    { the mark, the time, one character for each take or settlement ('1' allowed or done, '0' not),
--            then for each charge the value of its key before, false where there was none }
--
-- Packed numbers are little-endian; d is a double and keeps every whole microsecond, which tostring would not.
--
-- Redis runs this whole file at each call, so what is not needed in most calls is defined when it is first needed.

local LONGEST_TTL = 2 ^ 46 -- in milliseconds, 2,230 years: 14 digits, as many as a number keeps that becomes a text

local ceil = math.ceil

local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local todo, least_ttl = ARGV[2], tonumber(ARGV[4])
local reply = { ARGV[5], string.format('%.0f', now), '' }
local verdicts = {}
local charges_done = 0
local held, found -- the key that was read last, and its value: no key is read twice in a row

-- kind, stamp, period_us, limit, most, and three numbers of its kind
local function numbers_of(quota)
  return struct.unpack('<Bfdddddd', ARGV[1], quota * 53 - 52)
end

-- The time to live as SET wants it: over a number Redis would take longer than over a text.
local function ttl_text(ttl)
  return math.min(math.max(ttl, least_ttl), LONGEST_TTL) .. ''
end

-- Rate limiting by token buckets that drain at one rate, one charge a take: what nearly all takes are. There is no
-- table for each, and the text of the TTL is made anew only where that changes. It ends in front of a take whose state
-- has more to it, and answers how many are left.
local function quick_takes(number, count, cost)
  local kind, stamp, period_us, limit, most, slow, cap = numbers_of(number)
  if kind ~= 1 or slow ~= limit or cost > most then return count end
  local keys, call, try, pack, unpack = KEYS, redis.call, redis.pcall, struct.pack, struct.unpack
  local scaled, ttl, text = cost * period_us, nil, nil
  local target = cap - scaled
  for left = count, 1, -1 do
    local key = keys[charges_done + 1]
    if key ~= held then held, found = key, try('GET', key) end
    local value = found
    local format, mark, last, era, level = 1, stamp, now, now % 65536, 0
    if value then
      if #value ~= 23 then return left end
      format, mark, last, era, level = unpack('<BfdHd', value)
      if format ~= 1 or mark ~= stamp or last > now then return left end
    end
    local verdict = '0'
    level = level - (now - last) * limit
    if level < 0 then level = 0 end
    if level <= target then
      verdict, level = '1', level + scaled
      local meaning_ms = ceil(ceil(level / limit) / 1000)
      if meaning_ms ~= ttl then ttl, text = meaning_ms, ttl_text(meaning_ms) end
      found = pack('<BfdHd', 1, period_us, now, era, level)
      call('SET', key, found, 'PX', text)
    end
    charges_done = charges_done + 1
    reply[charges_done + 3] = value
    verdicts[#verdicts + 1] = verdict
  end
  return 0
end

-- what pacing needs, and everything else as well, defined when it is first needed -------------------------------------

local function pacing()
  local NEVER_US = 2 ^ 52
  local max, min, huge = math.max, math.min, math.huge
  local quotas = {}

  local function quota_of(number)
    if not quotas[number] then
      local kind, stamp, period_us, limit, most, a, b, c = numbers_of(number)
      quotas[number] = {
        kind = kind, stamp = stamp, period_us = period_us, limit = limit, most = most,
        slow = a, cap = b, line = c, buckets = a, part_us = b,
      }
    end
    return quotas[number]
  end

  local function era_of(now)
    return now % 65536
  end

  local function read(key)
    if key ~= held then held, found = key, redis.pcall('GET', key) end
    if type(found) == 'table' then -- an error: a key of a foreign type counts as unused, all else must not
      if not string.find(found.err, 'WRONGTYPE', 1, true) then error(found.err) end
      found = false
    end
    return found
  end

  local function write(key, value, meaning_us)
    redis.call('SET', key, value, 'PX', ttl_text(ceil(meaning_us / 1000)))
    held, found = key, value
  end

  local function drained(quota, level, elapsed)
    if elapsed <= 0 then return level end
    if level <= quota.line or quota.slow == quota.limit then return max(level - elapsed * quota.slow, 0) end
    local above = (level - quota.line) / quota.limit
    if elapsed <= above then return max(level - elapsed * quota.limit, quota.line) end
    return max(quota.line - (elapsed - above) * quota.slow, 0)
  end

  local function drain_time(quota, level, target)
    if level <= target then return 0 end
    if target >= quota.line or quota.slow == quota.limit then return ceil((level - target) / quota.limit) end
    local fast = max(level - quota.line, 0) / quota.limit
    return ceil(fast + (min(level, quota.line) - target) / quota.slow)
  end

  local function end_wait(quota, level, elapsed, target, soonest)
    local found = drain_time(quota, level, target) - elapsed
    if found >= NEVER_US then return huge end
    while drained(quota, level, elapsed + found) > target do found = found + 1 end
    while found > soonest and drained(quota, level, elapsed + (found - 1)) <= target do found = found - 1 end
    return found
  end

  -- A take of one charge from a token bucket without holes: with no table for each, which halves the time of pacing.
  -- It answers false, and has done nothing, where the quota or its state has more to it.
  local function plain_take(number, cost, max_wait)
    local quota, key = quota_of(number), KEYS[charges_done + 1]
    if quota.kind ~= 1 then return false end
    local value = read(key)
    local level, last, era, moved = 0, now, era_of(now), false
    if value and #value >= 23 then
      local format, stamp, since, made, left = struct.unpack('<BfdHd', value)
      if format == 1 and stamp == quota.stamp then
        if #value > 23 then return false end
        level, moved = left, now < since - quota.period_us
        if not moved then last, era = since, made end
      end
    end
    local scaled, since = cost * quota.period_us, now > last and now or last
    local target, wait = quota.cap - scaled, 0
    if target < 0 then target = 0 end
    local left = drained(quota, level, now - last)
    if cost > quota.most and max_wait <= 0 then
      wait = huge
    elseif left > target then
      wait = end_wait(quota, level, now - last, target, 0)
      if wait < huge then left = drained(quota, level, now + wait - last) end
    end
    local allowed = wait <= max_wait and wait < huge
    if allowed then
      level, last = left + scaled, since
      if now + wait > since then level = level + (now + wait - since) * quota.limit end
    end
    if allowed or (moved and max_wait >= 0) then
      local meaning_us = last - now + drain_time(quota, level, 0) -- last is now, or ahead of it: nothing drains
      write(key, struct.pack('<BfdHd', 1, quota.period_us, last, era, level), meaning_us)
    end
    charges_done = charges_done + 1
    reply[charges_done + 3] = value
    verdicts[#verdicts + 1] = allowed and '1' or '0'
    return true
  end

  -- The same for several charges, to rate limit, from buckets whose time is not ahead. It answers where the next take
  -- is, or nil, and has done nothing, where a quota or its state has more to it.
  local function plain_bill(at, charges)
    local fits, lines = true, {}
    for i = 1, charges do
      local number, cost, after = struct.unpack('<Hd', todo, at)
      local quota, key = quota_of(number), KEYS[charges_done + i]
      if quota.kind ~= 1 then return nil end
      local value, era, level = read(key), era_of(now), 0
      if value then
        if #value ~= 23 then return nil end
        local format, stamp, last
        format, stamp, last, era, level = struct.unpack('<BfdHd', value)
        if format ~= 1 or stamp ~= quota.stamp or last > now then return nil end
        level = drained(quota, level, now - last)
      end
      local scaled = cost * quota.period_us
      if cost > quota.most or level > quota.cap - scaled then fits = false end
      lines[i] = { quota = quota, key = key, era = era, level = level + scaled }
      reply[charges_done + i + 3] = value
      at = after
    end
    for _, line in ipairs(fits and lines or {}) do
      local value = struct.pack('<BfdHd', 1, line.quota.period_us, now, line.era, line.level)
      write(line.key, value, drain_time(line.quota, line.level, 0))
    end
    charges_done = charges_done + charges
    verdicts[#verdicts + 1] = fits and '1' or '0'
    return at
  end

  return {
    quota_of = quota_of, read = read, write = write, era_of = era_of,
    drained = drained, drain_time = drain_time, end_wait = end_wait, plain_take = plain_take, plain_bill = plain_bill,
  }
end

-- everything else, defined when it is first needed --------------------------------------------------------------------

local function everything_else(common)
  local MAX_HOLES = 64
  local MAX_IDS = 8

  local floor, max, min, huge = math.floor, math.max, math.min, math.huge
  local quota_of, read, write, era_of = common.quota_of, common.read, common.write, common.era_of
  local drained, drain_time, end_wait = common.drained, common.drain_time, common.end_wait

  -- _state ------------------------------------------------------------------------------------------------------------

  local function by_start(a, b)
    return a[1] < b[1]
  end

  local function units_in(holes, index)
    for _, hole in ipairs(holes) do
      if hole[1] == index then return hole[2] end
    end
    return 0
  end

  local function with_units(holes, index, units, first)
    local kept, found, left = {}, false, {}
    for _, hole in ipairs(holes) do
      if hole[1] >= first then
        if hole[1] == index then
          found = true
          kept[#kept + 1] = { hole[1], hole[2] + units }
        else
          kept[#kept + 1] = hole
        end
      end
    end
    if not found and #kept < MAX_HOLES then kept[#kept + 1] = { index, units } end
    for _, hole in ipairs(kept) do
      if hole[2] > 0 then left[#left + 1] = hole end
    end
    table.sort(left, by_start)
    return left
  end

  -- token_bucket: state.level -----------------------------------------------------------------------------------------

  local function token_bucket()
    local algorithm = {}

    local function run(quota, hole, elapsed)
      local start = hole[1] - max(elapsed, 0) * quota.limit
      if start >= 0 then return { start, hole[2] } end
      return { 0, hole[2] + start }
    end

    local function holes_after(quota, holes, elapsed)
      local left = {}
      for _, hole in ipairs(holes) do
        local later = run(quota, hole, elapsed)
        if later[2] > 0 then left[#left + 1] = later end
      end
      return left
    end

    local function fits(quota, hole, elapsed, cost)
      local later, scaled = run(quota, hole, elapsed), cost * quota.period_us
      return elapsed >= 0 and scaled <= later[2] and later[1] + scaled <= quota.cap
    end

    local function hole_wait(quota, hole, elapsed, cost, soonest)
      local earliest = max(elapsed + soonest, 0)
      local found = max(earliest, ceil((hole[1] + cost * quota.period_us - quota.cap) / quota.limit))
      if not fits(quota, hole, found, cost) then
        found = found + 1
        if not fits(quota, hole, found, cost) then return huge end
      end
      while found > earliest and fits(quota, hole, found - 1, cost) do found = found - 1 end
      return found - elapsed
    end

    local function place_in_holes(quota, state, now, cost, wait_us)
      local slot = now + wait_us
      for _, hole in ipairs(state.holes) do
        if fits(quota, hole, slot - state.last, cost) then
          return run(quota, hole, slot - state.last)[1] + (slot - max(now, state.last)) * quota.limit
        end
      end
      return nil
    end

    local function filled(holes, at, scaled)
      local left, kept = {}, {}
      for _, hole in ipairs(holes) do
        local start, size = hole[1], hole[2]
        if start <= at and at < start + size then
          local first, second = { start, at - start }, { at + scaled, start + size - (at + scaled) }
          if first[2] > 0 then left[#left + 1] = first end
          if second[2] > 0 then left[#left + 1] = second end
        else
          left[#left + 1] = hole
        end
      end
      for i = 1, min(#left, MAX_HOLES) do kept[i] = left[i] end
      return kept
    end

    local function with_hole(holes, start, size)
      local stop, apart, kept = start + size, {}, {}
      for _, hole in ipairs(holes) do
        if hole[1] + hole[2] < start or hole[1] > stop then
          apart[#apart + 1] = hole
        else
          start, size = min(start, hole[1]), size + hole[2]
        end
      end
      apart[#apart + 1] = { start, size }
      table.sort(apart, by_start)
      for i = 1, min(#apart, MAX_HOLES) do kept[i] = apart[i] end
      return kept
    end

    function algorithm.fresh(now)
      return { level = 0, last = now, era = era_of(now), holes = {}, ids = {} }
    end

    function algorithm.healed(_, state, now)
      return { level = state.level, last = now, era = era_of(now), holes = state.holes, ids = state.ids, moved = true }
    end

    function algorithm.wait(quota, state, now, cost, soonest)
      local target = max(quota.cap - cost * quota.period_us, 0)
      local found = soonest
      if drained(quota, state.level, now + soonest - state.last) > target then
        found = end_wait(quota, state.level, now - state.last, target, soonest)
      end
      for _, hole in ipairs(state.holes) do
        found = min(found, hole_wait(quota, hole, now - state.last, cost, soonest))
      end
      return found
    end

    function algorithm.book(quota, state, now, cost, wait_us)
      local since, slot = max(now, state.last), now + wait_us
      local scaled = cost * quota.period_us
      local at = place_in_holes(quota, state, now, cost, wait_us)
      local booked = { last = since, era = state.era, ids = state.ids }
      booked.holes = holes_after(quota, state.holes, since - state.last)
      if at then
        booked.level = drained(quota, state.level, since - state.last)
        booked.holes = filled(booked.holes, at, scaled)
        return booked
      end
      booked.level = drained(quota, state.level, slot - state.last) + scaled
      if slot > since then booked.level = booked.level + (slot - since) * quota.limit end
      return booked
    end

    function algorithm.give_back(quota, state, now, line)
      local base = max(now, state.last)
      local level = drained(quota, state.level, base - state.last)
      local holes = holes_after(quota, state.holes, base - state.last)
      local bottom = line.place + (line.cost - line.units) * quota.period_us
      local piece = run(quota, { bottom, line.units * quota.period_us }, base - line.since)
      local start, size = piece[1], piece[2]
      if size > 0 and start < level then
        if start + size < level then
          holes = with_hole(holes, start, size)
        else
          level = start
          while #holes > 0 and holes[#holes][1] + holes[#holes][2] >= level do
            level = min(level, holes[#holes][1])
            holes[#holes] = nil
          end
        end
      end
      return { level = level, last = base, era = state.era, holes = holes, ids = state.ids }
    end

    function algorithm.owe(quota, state, now, units)
      local base = max(now, state.last)
      local level = drained(quota, state.level, base - state.last) + units * quota.period_us
      local holes = holes_after(quota, state.holes, base - state.last)
      return { level = level, last = base, era = state.era, holes = holes, ids = state.ids }
    end

    function algorithm.reset_us(quota, state, now)
      return max(state.last - now, 0) + drain_time(quota, drained(quota, state.level, now - state.last), 0)
    end

    local function units_at(quota, level)
      local units = floor((quota.cap - level) / quota.period_us)
      return max(level <= quota.cap - units * quota.period_us and units or units - 1, 0)
    end

    function algorithm.left(quota, state, now)
      local units = units_at(quota, drained(quota, state.level, now - state.last))
      for _, hole in ipairs(holes_after(quota, state.holes, now - state.last)) do
        units = units + floor(max(min(hole[2], quota.cap - hole[1]), 0) / quota.period_us)
      end
      return units
    end

    function algorithm.pack(state)
      return struct.pack('<d', state.level)
    end

    function algorithm.unpack(state, value, at)
      state.level, at = struct.unpack('<d', value, at)
      return at
    end

    return algorithm
  end

  -- fixed_window: state.window, state.count ---------------------------------------------------------------------------

  local function fixed_window()
    local algorithm = {}

    local function window_at(quota, now)
      return floor(now / quota.period_us)
    end

    function algorithm.fresh(now)
      return { window = 0, count = 0, last = now, era = era_of(now), holes = {}, ids = {} }
    end

    function algorithm.healed(quota, state, now)
      local back = window_at(quota, state.last) - window_at(quota, now)
      local holes = {}
      for i, hole in ipairs(state.holes) do holes[i] = { hole[1] - back, hole[2] } end
      return {
        window = state.window - back, count = state.count,
        last = now, era = era_of(now), holes = holes, ids = state.ids, moved = true,
      }
    end

    function algorithm.wait(quota, state, now, cost, soonest)
      if cost > quota.limit then return huge end
      local first = window_at(quota, now + soonest)
      local found = max(first, state.window)
      if found == state.window and state.count + cost > quota.limit then found = found + 1 end
      for _, hole in ipairs(state.holes) do
        if first <= hole[1] and hole[1] < found and hole[2] >= cost then found = hole[1] end
      end
      return max(soonest, found * quota.period_us - now)
    end

    function algorithm.book(quota, state, now, cost, wait_us)
      local taken = window_at(quota, now + wait_us)
      local booked = {
        window = state.window, count = state.count,
        last = max(now, state.last), era = state.era, holes = state.holes, ids = state.ids,
      }
      if taken < state.window then
        booked.holes = with_units(state.holes, taken, -cost, window_at(quota, now))
      else
        booked.window = taken
        booked.count = taken == state.window and state.count + cost or cost
      end
      return booked
    end

    function algorithm.give_back(quota, state, now, line)
      local current = window_at(quota, now)
      if line.place < current or line.place > state.window then return state end
      local window, count, holes = state.window, state.count, state.holes
      if line.place < window then
        holes = with_units(holes, line.place, line.units, current)
      else
        count = max(count - line.units, 0)
        while count == 0 and window > current do
          window = window - 1
          count = quota.limit - units_in(holes, window)
          local kept = {}
          for _, hole in ipairs(holes) do
            if hole[1] < window then kept[#kept + 1] = hole end
          end
          holes = kept
        end
      end
      return {
        window = window, count = count, last = max(now, state.last), era = state.era, holes = holes, ids = state.ids,
      }
    end

    function algorithm.owe(quota, state, now, units)
      local window, count, current = state.window, state.count, window_at(quota, now)
      if window < current then window, count = current, 0 end
      local over = units - max(quota.limit - count, 0)
      if over <= 0 then
        count = count + units
      else
        local more = ceil(over / quota.limit)
        window, count = window + more, over - (more - 1) * quota.limit
      end
      return {
        window = window, count = count, last = max(now, state.last),
        era = state.era, holes = state.holes, ids = state.ids,
      }
    end

    function algorithm.reset_us(quota, state, now)
      if state.window < window_at(quota, now) then return 0 end
      return max((state.window + 1) * quota.period_us, state.last) - now
    end

    function algorithm.left(quota, state, now)
      local current = window_at(quota, now)
      if current < state.window then return floor(units_in(state.holes, current)) end
      return floor(current == state.window and max(quota.limit - state.count, 0) or quota.limit)
    end

    function algorithm.pack(state)
      return struct.pack('<dd', state.window, state.count)
    end

    function algorithm.unpack(state, value, at)
      state.window, state.count, at = struct.unpack('<dd', value, at)
      return at
    end

    return algorithm
  end

  -- rolling_window: state.parts, { part, count, part, count, ... }, because a table for each would cost the most ------

  local function rolling_window()
    local algorithm = {}

    local function part_at(quota, now)
      return floor(now / quota.part_us)
    end

    local function add(parts, part, count)
      parts[#parts + 1] = part
      parts[#parts + 1] = count
    end

    local function used(quota, state, at)
      local parts, total = state.parts, 0
      for i = #parts, 2, -2 do
        if parts[i - 1] < at - quota.buckets then break end
        total = total + parts[i]
      end
      return total
    end

    local function first_end(quota, parts, first, cost)
      local total = 0
      for i = #parts, 2, -2 do
        total = total + parts[i]
        if total + cost > quota.limit then return max(first, parts[i - 1] + quota.buckets + 1) end
      end
      return first
    end

    function algorithm.fresh(now)
      return { parts = {}, last = now, era = era_of(now), holes = {}, ids = {} }
    end

    function algorithm.healed(quota, state, now)
      local back = part_at(quota, state.last) - part_at(quota, now)
      local parts, holes = {}, {}
      for i, number in ipairs(state.parts) do parts[i] = i % 2 == 1 and number - back or number end
      for i, hole in ipairs(state.holes) do holes[i] = { hole[1] - back, hole[2] } end
      return { parts = parts, last = now, era = era_of(now), holes = holes, ids = state.ids, moved = true }
    end

    function algorithm.wait(quota, state, now, cost, soonest)
      if cost > quota.limit then return huge end
      local parts, first = state.parts, part_at(quota, now + soonest)
      local found = first_end(quota, parts, max(first, parts[#parts - 1] or first), cost)
      for _, hole in ipairs(state.holes) do
        if first <= hole[1] and hole[1] < found and hole[2] >= cost then found = hole[1] end
      end
      return max(soonest, found * quota.part_us - now)
    end

    function algorithm.book(quota, state, now, cost, wait_us)
      local taken, parts = part_at(quota, now + wait_us), state.parts
      local latest = parts[#parts - 1]
      local booked = { parts = {}, last = max(now, state.last), era = state.era, holes = state.holes, ids = state.ids }
      if latest and taken < latest then
        booked.parts, booked.holes = parts, with_units(state.holes, taken, -cost, part_at(quota, now))
      elseif taken == latest then
        booked.parts = { unpack(parts) }
        booked.parts[#parts] = parts[#parts] + cost
      else
        for i = 1, #parts, 2 do
          if parts[i] >= taken - quota.buckets and parts[i + 1] > 0 then add(booked.parts, parts[i], parts[i + 1]) end
        end
        add(booked.parts, taken, cost)
      end
      return booked
    end

    function algorithm.give_back(quota, state, now, line)
      local parts, current = state.parts, part_at(quota, now)
      local latest = parts[#parts - 1]
      if not latest or line.place > latest then return state end
      local left = { parts = parts, last = max(now, state.last), era = state.era, holes = state.holes, ids = state.ids }
      if current <= line.place and line.place < latest then
        left.holes = with_units(state.holes, line.place, line.units, current)
        return left
      end
      left.parts = { unpack(parts) }
      for i = 1, #parts, 2 do
        if parts[i] == line.place then left.parts[i + 1] = max(parts[i + 1] - line.units, 0) end
      end
      return left
    end

    function algorithm.owe(quota, state, now, units)
      local parts, current, kept, had = state.parts, part_at(quota, now), {}, 0
      local at = max(current, parts[#parts - 1] or current)
      for i = 1, #parts, 2 do
        if parts[i] == at then
          had = parts[i + 1]
        elseif parts[i] >= at - quota.buckets then
          add(kept, parts[i], parts[i + 1])
        end
      end
      local over = units - max(quota.limit - used(quota, state, at), 0)
      if over <= 0 then
        add(kept, at, had + units)
      else
        local more = ceil(over / quota.limit)
        kept = { at + more * (quota.buckets + 1), over - (more - 1) * quota.limit }
      end
      return { parts = kept, last = max(now, state.last), era = state.era, holes = state.holes, ids = state.ids }
    end

    function algorithm.reset_us(quota, state, now)
      local parts = state.parts
      if #parts == 0 then return 0 end
      local over = (parts[#parts - 1] + quota.buckets + 1) * quota.part_us
      return over > now and max(over, state.last) - now or 0
    end

    function algorithm.left(quota, state, now)
      local parts, current = state.parts, part_at(quota, now)
      if #parts > 0 and current < parts[#parts - 1] then return floor(units_in(state.holes, current)) end
      return floor(max(quota.limit - used(quota, state, current), 0))
    end

    function algorithm.pack(state, quota)
      local parts = state.parts
      return struct.pack('<HH' .. ('d'):rep(#parts), quota.buckets, #parts / 2, unpack(parts))
    end

    function algorithm.unpack(state, value, at)
      local count
      state.buckets, count, at = struct.unpack('<HH', value, at)
      state.parts = { struct.unpack('<' .. ('dd'):rep(count), value, at) }
      at = table.remove(state.parts)
      return at
    end

    return algorithm
  end

  -- takes -------------------------------------------------------------------------------------------------------------

  local algorithms = {}

  local function algorithm_of(quota)
    if not algorithms[quota.kind] then
      algorithms[quota.kind] = ({ token_bucket, fixed_window, rolling_window })[quota.kind]()
    end
    return algorithms[quota.kind]
  end

  local function known(quota, state, now)
    if not state then return quota.algorithm.fresh(now) end
    if now < state.last - quota.period_us then return quota.algorithm.healed(quota, state, now) end
    return state
  end

  local function ask(lines, max_wait, now, floor_us)
    local longest, holes = 0, false
    for _, line in ipairs(lines) do
      local own = huge
      if line.cost <= line.quota.most or max_wait > 0 then
        own = line.quota.algorithm.wait(line.quota, line.state, now, line.cost, 0)
      end
      longest = max(longest, own)
      holes = holes or #line.state.holes > 0
    end
    if longest == huge or (floor_us == 0 and (not holes or #lines == 1)) then return longest end
    local soonest = -1
    longest = max(longest, floor_us)
    while soonest < longest do
      soonest = longest
      for _, line in ipairs(lines) do
        longest = line.quota.algorithm.wait(line.quota, line.state, now, line.cost, longest)
      end
    end
    return longest
  end

  local function at_cost(lines, cost)
    for _, line in ipairs(lines) do line.cost = cost end
  end

  local function partial(lines, now)
    local cost = lines[1].cost
    local least, granted = min(cost, 1), cost
    for _, line in ipairs(lines) do
      granted = min(granted, line.quota.algorithm.left(line.quota, line.state, now))
    end
    at_cost(lines, granted)
    while granted > least and ask(lines, 0, now, 0) > 0 do
      granted = granted - 1
      at_cost(lines, granted)
    end
    at_cost(lines, max(granted, least))
  end

  local function unpack_state(quota, value)
    if not value or #value < 19 then return nil end
    local format, period_us, last, era, at = struct.unpack('<BfdH', value)
    if format ~= quota.kind or period_us ~= quota.stamp then return nil end
    local state = { last = last, era = era, holes = {}, ids = {} }
    at = quota.algorithm.unpack(state, value, at)
    if state.buckets and state.buckets ~= quota.buckets then return nil end
    if at > #value then return state end
    local holes, ids
    holes, ids, at = struct.unpack('<BB', value, at)
    for i = 1, holes do
      local first, second
      first, second, at = struct.unpack('<dd', value, at)
      state.holes[i] = { first, second }
    end
    for i = 1, ids do state.ids[i], at = struct.unpack('<d', value, at) end
    return state
  end

  local function pack_state(quota, state)
    local head = struct.pack('<BfdH', quota.kind, quota.period_us, state.last, state.era)
    local value = head .. quota.algorithm.pack(state, quota)
    if #state.holes == 0 and #state.ids == 0 then return value end
    local packed = { value, struct.pack('<BB', #state.holes, #state.ids) }
    for _, hole in ipairs(state.holes) do packed[#packed + 1] = struct.pack('<dd', hole[1], hole[2]) end
    for _, id in ipairs(state.ids) do packed[#packed + 1] = struct.pack('<d', id) end
    return table.concat(packed)
  end

  local function settled(id, line, now)
    local algorithm, state = line.quota.algorithm, known(line.quota, line.state, now)
    if line.units == 0 or (not line.state and line.units > 0) then return nil end
    for _, other in ipairs(state.ids) do
      if other == id then return nil end
    end
    local after
    local booked = { level = state.level, window = state.window, count = state.count, parts = state.parts }
    booked.last, booked.era, booked.holes, booked.ids = state.last, state.era, state.holes, {}
    if #line.after > 0 and pack_state(line.quota, booked) == line.after then
      after = unpack_state(line.quota, line.before)
    elseif line.units < 0 then
      after = algorithm.owe(line.quota, state, now, -line.units)
    elseif state.era == line.era and line.since <= state.last then
      after = algorithm.give_back(line.quota, state, now, line)
    else
      return nil
    end
    local ids = {}
    for i = max(#state.ids - MAX_IDS + 2, 1), #state.ids do ids[#ids + 1] = state.ids[i] end
    ids[#ids + 1] = id
    after.ids = ids
    return after
  end

  local function next_line(at)
    local number, line = nil, {}
    number, line.cost, at = struct.unpack('<Hd', todo, at)
    charges_done = charges_done + 1
    line.quota, line.key = quota_of(number), KEYS[charges_done]
    line.quota.algorithm = algorithm_of(line.quota)
    local value = read(line.key)
    reply[charges_done + 3] = value
    local whole, state = pcall(unpack_state, line.quota, value)
    if whole then line.state = state end
    return line, at
  end

  local function save(line, state)
    write(line.key, pack_state(line.quota, state), line.quota.algorithm.reset_us(line.quota, state, now))
  end

  local function take(at, action)
    local max_wait, count, lines, soonest = nil, nil, {}, 0
    max_wait, count, at = struct.unpack('<dH', todo, at)
    if action == 5 then max_wait, soonest = huge, max_wait end
    for i = 1, count do
      lines[i], at = next_line(at)
      lines[i].state = known(lines[i].quota, lines[i].state, now)
    end
    if action == 2 then partial(lines, now) end
    local longest = ask(lines, max_wait, now, soonest)
    local allowed = longest <= max_wait and longest < huge
    for _, line in ipairs(lines) do
      if allowed then
        save(line, line.quota.algorithm.book(line.quota, line.state, now, line.cost, longest))
      elseif line.state.moved and max_wait >= 0 then
        save(line, line.state)
      end
    end
    verdicts[#verdicts + 1] = allowed and '1' or '0'
    return at
  end

  local function settle(at)
    local id, count, done = nil, nil, false
    id, count, at = struct.unpack('<dH', todo, at)
    for _ = 1, count do
      local line, actual
      line, at = next_line(at)
      actual, line.since, line.era, line.place, line.before, line.after, at = struct.unpack('<ddddHc0Hc0', todo, at)
      line.units = line.cost - actual
      local after = settled(id, line, now)
      if after then
        save(line, after)
        done = true
      end
    end
    verdicts[#verdicts + 1] = done and '1' or '0'
    return at
  end

  local function reset(at)
    local _, charges = struct.unpack('<dH', todo, at)
    for _ = 1, charges do
      charges_done = charges_done + 1
      redis.call('DEL', KEYS[charges_done])
      held = nil
      reply[charges_done + 3] = false
    end
    verdicts[#verdicts + 1] = '1'
    return at + 10 + charges * 10
  end

  return function(action, at)
    if action == 4 then return reset(at) end
    if action == 3 then return settle(at) end
    return take(at, action)
  end
end

local at = 1
local paced, carry_out
while at <= #todo do
  local action, count, max_wait, charges, number, cost, after = struct.unpack('<BHdHHd', todo, at)
  local single, several = action == 1 and charges == 1, action == 1 and charges > 1 and max_wait == 0
  while count > 0 do
    if single and max_wait == 0 then count = quick_takes(number, count, cost) end
    if count > 0 then
      paced = paced or pacing()
      local over = several and paced.plain_bill(at + 13, charges)
      if single and paced.plain_take(number, cost, max_wait) then over = after end
      if not over then
        carry_out = carry_out or everything_else(paced)
        over = carry_out(action, at + 3)
      end
      count, after = count - 1, over
    end
  end
  at = after
end

reply[3] = table.concat(verdicts)
return reply
