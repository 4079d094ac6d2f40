-- Rate limiting and pacing by token buckets (leaky buckets as meters), fixed and rolling windows: a list of takes,
-- each all or nothing, and of settlements, carried out in one call.
--
-- The functions are those of the modules in algorithms/: same names, same order, same operations on doubles, so that
-- both give answers equal to the bit. All reads of a take come before its writes; a refused take writes nothing.
--
-- KEYS     one string key for each charge, in the order of the takes; all in one slot on a cluster
-- ARGV[1]  the distinct quotas, packed: for each  B kind, d period_us, d limit, d most, and then
--          for a token bucket (1)    d slow, d cap, d line
--          for a fixed window (2)    d 0, d 0, d 0
--          for a rolling window (3)  d buckets, d part_us, d 0
-- ARGV[2]  what to do, packed: for each
--          a take         B 1, or B 2 for a best effort, d max_wait_us (-1: look, but take nothing), H charges,
--                         and for each charge  H number of the quota, from 1, d cost
--          a settlement   B 3, d id, H charges, and for each charge
--                         H number of the quota, d charged, d actual, d since_us, d era, d place
-- ARGV[3]  the time in microseconds since the epoch, or '' for the server's own
-- ARGV[4]  the least time to live of a key, in milliseconds
--
-- A value is packed: B format, f period_us, d last, H era, and then
--          of a token bucket (format 1)    d level
--          of a fixed window (format 2)    d window, d count
--          of a rolling window (format 3)  H parts, and for each  d part, d count
-- and, where there are any, B holes, B ids, for each hole d, d, and for each id d. What has another format, or was
-- written under another period, counts as never used.
--
-- Reply    { the time, one character for each take or settlement ('1' allowed or done, '0' not),
--            then for each charge the value of its key before, false where there was none }
--
-- Packed numbers are little-endian; d is a double and keeps every whole microsecond, which tostring would not.

local NEVER_US = 2 ^ 52
local MAX_HOLES = 64
local MAX_IDS = 8

local floor, ceil, max, min, huge = math.floor, math.ceil, math.max, math.min, math.huge

-- _state ------------------------------------------------------------------------------------------------------------

local function era_of(now)
  return now % 65536
end

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

local token_bucket = {}

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

local function as_of_now(quota, state, now)
  local level = drained(quota, state.level, now - state.last)
  local run = max(now - state.last, 0) * quota.limit
  local holes = {}
  for _, hole in ipairs(state.holes) do
    if hole[2] > run then holes[#holes + 1] = { max(hole[1] - run, 0), hole[2] - run } end
  end
  return level, holes
end

local function fit(quota, hole, ahead, cost, soonest)
  local scaled = cost * quota.period_us
  local at = max(soonest, ahead + ceil((hole[1] + scaled - quota.cap) / quota.limit))
  local reached = (at - ahead) * quota.limit
  local start = max(hole[1], reached)
  local fits = start + scaled <= hole[2] and start + scaled - quota.cap <= reached
  return fits and at or huge, start
end

local function filled(holes, hole, start, scaled)
  local rest, kept = {}, {}
  for _, other in ipairs(holes) do
    if other ~= hole then rest[#rest + 1] = other end
  end
  if hole[1] < start then rest[#rest + 1] = { hole[1], start } end
  if start + scaled < hole[2] then rest[#rest + 1] = { start + scaled, hole[2] } end
  table.sort(rest, by_start)
  for i = 1, min(#rest, MAX_HOLES) do kept[i] = rest[i] end
  return kept
end

local function with_hole(holes, start, stop)
  local apart, kept = {}, {}
  for _, hole in ipairs(holes) do
    if hole[2] < start or hole[1] > stop then
      apart[#apart + 1] = hole
    else
      start, stop = min(start, hole[1]), max(stop, hole[2])
    end
  end
  apart[#apart + 1] = { start, stop }
  table.sort(apart, by_start)
  for i = 1, min(#apart, MAX_HOLES) do kept[i] = apart[i] end
  return kept
end

function token_bucket.fresh(now)
  return { level = 0, last = now, era = era_of(now), holes = {}, ids = {} }
end

function token_bucket.healed(_, state, now)
  return { level = state.level, last = now, era = era_of(now), holes = state.holes, ids = state.ids, moved = true }
end

function token_bucket.wait(quota, state, now, cost, soonest)
  local target = max(quota.cap - cost * quota.period_us, 0)
  local found = soonest
  if drained(quota, state.level, now + soonest - state.last) > target then
    found = end_wait(quota, state.level, now - state.last, target, soonest)
  end
  if #state.holes > 0 then
    local _, holes = as_of_now(quota, state, now)
    for _, hole in ipairs(holes) do
      found = min(found, (fit(quota, hole, max(state.last - now, 0), cost, soonest)))
    end
  end
  return found
end

function token_bucket.book(quota, state, now, cost, wait_us)
  local since, slot = max(now, state.last), now + wait_us
  local scaled = cost * quota.period_us
  local booked = { last = since, era = state.era, holes = state.holes, ids = state.ids }
  if #state.holes > 0 then
    booked.level, booked.holes = as_of_now(quota, state, now)
    for _, hole in ipairs(booked.holes) do
      local at, start = fit(quota, hole, since - now, cost, wait_us)
      if at == wait_us then
        booked.holes = filled(booked.holes, hole, start, scaled)
        return booked
      end
    end
  end
  booked.level = drained(quota, state.level, slot - state.last) + scaled
  if slot > since then booked.level = booked.level + (slot - since) * quota.limit end
  return booked
end

function token_bucket.give_back(quota, state, now, line)
  local level, holes = as_of_now(quota, state, now)
  local base = max(now, state.last)
  local run = (base - line.since) * quota.limit
  local stop = line.place + line.cost * quota.period_us - run
  local start = max(line.place + (line.cost - line.units) * quota.period_us - run, 0)
  if start < min(stop, level) then
    if stop < level then
      holes = with_hole(holes, start, stop)
    else
      level = start
      while #holes > 0 and holes[#holes][2] >= level do
        level = min(level, holes[#holes][1])
        holes[#holes] = nil
      end
    end
  end
  return { level = level, last = base, era = state.era, holes = holes, ids = state.ids }
end

function token_bucket.owe(quota, state, now, units)
  local level, holes = as_of_now(quota, state, now)
  level = level + units * quota.period_us
  return { level = level, last = max(now, state.last), era = state.era, holes = holes, ids = state.ids }
end

function token_bucket.reset_us(quota, state, now)
  return max(state.last - now, 0) + drain_time(quota, drained(quota, state.level, now - state.last), 0)
end

function token_bucket.left(quota, state, now)
  local most = floor((quota.cap - drained(quota, state.level, now - state.last)) / quota.period_us)
  local _, holes = as_of_now(quota, state, now)
  for _, hole in ipairs(holes) do
    most = max(most, floor((min(hole[2], quota.cap) - hole[1]) / quota.period_us))
  end
  return max(most, 0)
end

function token_bucket.pack(state)
  return struct.pack('<d', state.level)
end

function token_bucket.unpack(state, value, at)
  state.level, at = struct.unpack('<d', value, at)
  return at
end

-- fixed_window: state.window, state.count -----------------------------------------------------------------------------

local fixed_window = {}

local function window_at(quota, now)
  return floor(now / quota.period_us)
end

function fixed_window.fresh(now)
  return { window = 0, count = 0, last = now, era = era_of(now), holes = {}, ids = {} }
end

function fixed_window.healed(quota, state, now)
  local back = window_at(quota, state.last) - window_at(quota, now)
  local holes = {}
  for i, hole in ipairs(state.holes) do holes[i] = { hole[1] - back, hole[2] } end
  return {
    window = state.window - back, count = state.count,
    last = now, era = era_of(now), holes = holes, ids = state.ids, moved = true,
  }
end

function fixed_window.wait(quota, state, now, cost, soonest)
  if cost > quota.limit then return huge end
  local first = window_at(quota, now + soonest)
  local found = max(first, state.window)
  if found == state.window and state.count + cost > quota.limit then found = found + 1 end
  for _, hole in ipairs(state.holes) do
    if first <= hole[1] and hole[1] < found and hole[2] >= cost then found = hole[1] end
  end
  return max(soonest, found * quota.period_us - now)
end

function fixed_window.book(quota, state, now, cost, wait_us)
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

function fixed_window.give_back(quota, state, now, line)
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

function fixed_window.owe(quota, state, now, units)
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
    window = window, count = count, last = max(now, state.last), era = state.era, holes = state.holes, ids = state.ids,
  }
end

function fixed_window.reset_us(quota, state, now)
  if state.window < window_at(quota, now) then return 0 end
  return max((state.window + 1) * quota.period_us, state.last) - now
end

function fixed_window.left(quota, state, now)
  local current = window_at(quota, now)
  if current < state.window then return floor(units_in(state.holes, current)) end
  return floor(current == state.window and max(quota.limit - state.count, 0) or quota.limit)
end

function fixed_window.pack(state)
  return struct.pack('<dd', state.window, state.count)
end

function fixed_window.unpack(state, value, at)
  state.window, state.count, at = struct.unpack('<dd', value, at)
  return at
end

-- rolling_window: state.parts, a list of { part, count } --------------------------------------------------------------

local rolling_window = {}

local function part_at(quota, now)
  return floor(now / quota.part_us)
end

local function used(quota, state, at)
  local total = 0
  for i = #state.parts, 1, -1 do
    if state.parts[i][1] < at - quota.buckets then break end
    total = total + state.parts[i][2]
  end
  return total
end

local function first_end(quota, parts, first, cost)
  local total = 0
  for i = #parts, 1, -1 do
    total = total + parts[i][2]
    if total + cost > quota.limit then return max(first, parts[i][1] + quota.buckets + 1) end
  end
  return first
end

function rolling_window.fresh(now)
  return { parts = {}, last = now, era = era_of(now), holes = {}, ids = {} }
end

function rolling_window.healed(quota, state, now)
  local back = part_at(quota, state.last) - part_at(quota, now)
  local parts, holes = {}, {}
  for i, part in ipairs(state.parts) do parts[i] = { part[1] - back, part[2] } end
  for i, hole in ipairs(state.holes) do holes[i] = { hole[1] - back, hole[2] } end
  return { parts = parts, last = now, era = era_of(now), holes = holes, ids = state.ids, moved = true }
end

function rolling_window.wait(quota, state, now, cost, soonest)
  if cost > quota.limit then return huge end
  local parts, first = state.parts, part_at(quota, now + soonest)
  local found = first_end(quota, parts, #parts > 0 and max(first, parts[#parts][1]) or first, cost)
  for _, hole in ipairs(state.holes) do
    if first <= hole[1] and hole[1] < found and hole[2] >= cost then found = hole[1] end
  end
  return max(soonest, found * quota.part_us - now)
end

function rolling_window.book(quota, state, now, cost, wait_us)
  local taken, parts = part_at(quota, now + wait_us), state.parts
  local booked = { parts = {}, last = max(now, state.last), era = state.era, holes = state.holes, ids = state.ids }
  if #parts > 0 and taken < parts[#parts][1] then
    booked.parts, booked.holes = parts, with_units(state.holes, taken, -cost, part_at(quota, now))
  elseif #parts > 0 and taken == parts[#parts][1] then
    for i = 1, #parts - 1 do booked.parts[i] = parts[i] end
    booked.parts[#parts] = { taken, parts[#parts][2] + cost }
  else
    for _, part in ipairs(parts) do
      if part[1] >= taken - quota.buckets and part[2] > 0 then booked.parts[#booked.parts + 1] = part end
    end
    booked.parts[#booked.parts + 1] = { taken, cost }
  end
  return booked
end

function rolling_window.give_back(quota, state, now, line)
  local parts, current = state.parts, part_at(quota, now)
  if #parts == 0 or line.place > parts[#parts][1] then return state end
  local left = { parts = parts, last = max(now, state.last), era = state.era, holes = state.holes, ids = state.ids }
  if current <= line.place and line.place < parts[#parts][1] then
    left.holes = with_units(state.holes, line.place, line.units, current)
    return left
  end
  left.parts = {}
  for i, part in ipairs(parts) do
    left.parts[i] = part[1] == line.place and { part[1], max(part[2] - line.units, 0) } or part
  end
  return left
end

function rolling_window.owe(quota, state, now, units)
  local parts, current, kept, had = state.parts, part_at(quota, now), {}, 0
  local at = #parts > 0 and max(current, parts[#parts][1]) or current
  for _, part in ipairs(parts) do
    if part[1] == at then
      had = part[2]
    elseif part[1] >= at - quota.buckets then
      kept[#kept + 1] = part
    end
  end
  local over = units - max(quota.limit - used(quota, state, at), 0)
  if over <= 0 then
    kept[#kept + 1] = { at, had + units }
  else
    local more = ceil(over / quota.limit)
    kept = { { at + more * (quota.buckets + 1), over - (more - 1) * quota.limit } }
  end
  return { parts = kept, last = max(now, state.last), era = state.era, holes = state.holes, ids = state.ids }
end

function rolling_window.reset_us(quota, state, now)
  local parts = state.parts
  if #parts == 0 then return 0 end
  local over = (parts[#parts][1] + quota.buckets + 1) * quota.part_us
  return over > now and max(over, state.last) - now or 0
end

function rolling_window.left(quota, state, now)
  local parts, current = state.parts, part_at(quota, now)
  if #parts > 0 and current < parts[#parts][1] then return floor(units_in(state.holes, current)) end
  return floor(max(quota.limit - used(quota, state, current), 0))
end

function rolling_window.pack(state)
  local packed = { struct.pack('<H', #state.parts) }
  for i, part in ipairs(state.parts) do packed[i + 1] = struct.pack('<dd', part[1], part[2]) end
  return table.concat(packed)
end

function rolling_window.unpack(state, value, at)
  local count
  count, at = struct.unpack('<H', value, at)
  state.parts = {}
  for i = 1, count do
    local part, units
    part, units, at = struct.unpack('<dd', value, at)
    state.parts[i] = { part, units }
  end
  return at
end

-- takes ---------------------------------------------------------------------------------------------------------------

local algorithms = { token_bucket, fixed_window, rolling_window }

local function known(quota, state, now)
  if not state then return quota.algorithm.fresh(now) end
  if now < state.last - quota.period_us then return quota.algorithm.healed(quota, state, now) end
  return state
end

local function ask(lines, max_wait, now)
  local longest, holes = 0, false
  for _, line in ipairs(lines) do
    local own = huge
    if line.cost <= line.quota.most or max_wait > 0 then
      own = line.quota.algorithm.wait(line.quota, line.state, now, line.cost, 0)
    end
    longest = max(longest, own)
    holes = holes or #line.state.holes > 0
  end
  if not holes or #lines == 1 or longest == huge then return longest end
  local soonest = -1
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
  while granted > least and ask(lines, 0, now) > 0 do
    granted = granted - 1
    at_cost(lines, granted)
  end
  at_cost(lines, max(granted, least))
end

local function settled(id, line, now)
  local algorithm, state = line.quota.algorithm, known(line.quota, line.state, now)
  if line.units == 0 or (not line.state and line.units > 0) then return nil end
  for _, other in ipairs(state.ids) do
    if other == id then return nil end
  end
  local after
  if line.units < 0 then
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

-- the values of keys, each read once in this call ---------------------------------------------------------------------

local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local least_ttl = tonumber(ARGV[4])
local values = {}

local function read(key)
  if values[key] == nil then
    local value = redis.pcall('GET', key) -- a key of a foreign type answers with an error, and counts as unused
    values[key] = type(value) == 'string' and value
  end
  return values[key]
end

local function unpack_state(quota, value)
  if not value or #value < 23 then return nil end
  local format, period_us, last, era, at = struct.unpack('<BfdH', value)
  if format ~= quota.kind or period_us ~= quota.stamp then return nil end
  local state = { last = last, era = era, holes = {}, ids = {} }
  at = quota.algorithm.unpack(state, value, at)
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
  local value = struct.pack('<BfdH', quota.kind, quota.period_us, state.last, state.era) .. quota.algorithm.pack(state)
  if #state.holes == 0 and #state.ids == 0 then return value end
  local packed = { value, struct.pack('<BB', #state.holes, #state.ids) }
  for _, hole in ipairs(state.holes) do packed[#packed + 1] = struct.pack('<dd', hole[1], hole[2]) end
  for _, id in ipairs(state.ids) do packed[#packed + 1] = struct.pack('<d', id) end
  return table.concat(packed)
end

local function write(key, quota, state)
  local value = pack_state(quota, state)
  local ttl = min(max(ceil(quota.algorithm.reset_us(quota, state, now) / 1000), least_ttl), NEVER_US)
  redis.call('SET', key, value, 'PX', string.format('%.0f', ttl))
  values[key] = value
end

-- what to do ------------------------------------------------------------------------------------------------------------

local function unpack_quotas(packed)
  local quotas, at = {}, 1
  while at <= #packed do
    local quota, a, b, c = {}, nil, nil, nil
    quota.kind, quota.period_us, quota.limit, quota.most, a, b, c, at = struct.unpack('<Bdddddd', packed, at)
    quota.slow, quota.cap, quota.line = a, b, c
    quota.buckets, quota.part_us = a, b
    quota.algorithm = algorithms[quota.kind]
    quota.stamp = struct.unpack('<f', struct.pack('<f', quota.period_us))
    quotas[#quotas + 1] = quota
  end
  return quotas
end

local quotas, todo = unpack_quotas(ARGV[1]), ARGV[2]
local verdicts, before = {}, {}

local function next_line(at)
  local number, line = nil, {}
  number, line.cost, at = struct.unpack('<Hd', todo, at)
  line.quota, line.key = quotas[number], KEYS[#before + 1]
  local value = read(line.key)
  before[#before + 1] = value
  line.state = unpack_state(line.quota, value)
  return line, at
end

local function take(at, best_effort)
  local max_wait, count, lines = nil, nil, {}
  max_wait, count, at = struct.unpack('<dH', todo, at)
  for i = 1, count do
    lines[i], at = next_line(at)
    lines[i].state = known(lines[i].quota, lines[i].state, now)
  end
  if best_effort then partial(lines, now) end
  local longest = ask(lines, max_wait, now)
  local allowed = longest <= max_wait and longest < huge
  for _, line in ipairs(lines) do
    if allowed then
      write(line.key, line.quota, line.quota.algorithm.book(line.quota, line.state, now, line.cost, longest))
    elseif line.state.moved and max_wait >= 0 then
      write(line.key, line.quota, line.state)
    end
  end
  return allowed, at
end

local function settle(at)
  local id, count, done = nil, nil, false
  id, count, at = struct.unpack('<dH', todo, at)
  for _ = 1, count do
    local line, actual
    line, at = next_line(at)
    actual, line.since, line.era, line.place, at = struct.unpack('<dddd', todo, at)
    line.units = line.cost - actual
    local after = settled(id, line, now)
    if after then
      write(line.key, line.quota, after)
      done = true
    end
  end
  return done, at
end

local at = 1
while at <= #todo do
  local action, done
  action, at = struct.unpack('<B', todo, at)
  if action == 3 then
    done, at = settle(at)
  else
    done, at = take(at, action == 2)
  end
  verdicts[#verdicts + 1] = done and '1' or '0'
end

return { string.format('%.0f', now), table.concat(verdicts), unpack(before) }
