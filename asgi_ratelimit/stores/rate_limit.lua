-- Token-bucket rate limiting and pacing: a list of takes, each all or nothing, decided in one call.
--
-- The functions are those of algorithms.py: same names, same order, same operations on doubles, so that both
-- give answers equal to the bit. All reads of a take come before its writes; a refused take writes nothing.
--
-- KEYS     one string key for each charge, in the order of the takes; all in one slot on a cluster
-- ARGV[1]  the distinct quotas, packed: for each  B kind (1), d period_us, d limit, d slow, d cap, d line, d burst
-- ARGV[2]  the takes, packed: for each  d max_wait_us (-1: look, but take nothing), B number of charges,
--          and for each of these  B number of the quota, from 1, d cost
-- ARGV[3]  the time in microseconds since the epoch, or '' for the server's own
-- ARGV[4]  the least time to live of a key, in milliseconds
--
-- A value is packed: B format (1), f period_us, d level, d last. What has another format, or was written under
-- another period, counts as never used.
--
-- Reply    { the time, one character for each take ('1' allowed, '0' refused),
--            then for each charge the value of its key before the take, false where there was none }
--
-- Packed numbers are little-endian; d is a double and keeps every whole microsecond, which tostring would not.

local NEVER_US = 2 ^ 52
local FORMAT = 1

local function drained(quota, level, elapsed)
  if elapsed <= 0 then return level end
  if level <= quota.line or quota.slow == quota.limit then
    return math.max(level - elapsed * quota.slow, 0)
  end
  local above = (level - quota.line) / quota.limit
  if elapsed <= above then return math.max(level - elapsed * quota.limit, quota.line) end
  return math.max(quota.line - (elapsed - above) * quota.slow, 0)
end

local function drain_time(quota, level, target)
  if level <= target then return 0 end
  if target >= quota.line or quota.slow == quota.limit then
    return math.ceil((level - target) / quota.limit)
  end
  local fast = math.max(level - quota.line, 0) / quota.limit
  return math.ceil(fast + (math.min(level, quota.line) - target) / quota.slow)
end

local function healed(quota, state, now)
  if not state then return { level = 0, last = now } end
  if now < state.last - quota.period_us then return { level = state.level, last = now, moved = true } end
  return state
end

local function wait(quota, state, now, cost)
  local level, last = state.level, state.last
  local target = math.max(quota.cap - cost * quota.period_us, 0)
  if drained(quota, level, now - last) <= target then return 0 end
  local found = last + drain_time(quota, level, target) - now
  if found >= NEVER_US then return math.huge end
  while drained(quota, level, now + found - last) > target do found = found + 1 end
  while drained(quota, level, now + (found - 1) - last) <= target do found = found - 1 end
  return found
end

local function book(quota, state, now, cost, wait_us)
  local slot = now + wait_us
  local level = drained(quota, state.level, slot - state.last) + cost * quota.period_us
  local since = math.max(now, state.last)
  if slot > since then level = level + (slot - since) * quota.limit end
  return { level = level, last = since }
end

local function reset_us(quota, state, now)
  local level = drained(quota, state.level, now - state.last)
  return math.max(state.last - now, 0) + drain_time(quota, level, 0)
end

local function unpack_quotas(packed)
  local quotas, at = {}, 1
  while at <= #packed do
    local quota, kind = {}, nil
    kind, quota.period_us, quota.limit, quota.slow, quota.cap, quota.line, quota.burst, at =
      struct.unpack('<Bdddddd', packed, at)
    quota.stamp = struct.pack('<Bf', FORMAT, quota.period_us)
    quotas[#quotas + 1] = quota
  end
  return quotas
end

local function unpack_state(quota, value)
  if type(value) ~= 'string' or #value ~= 21 or value:sub(1, 5) ~= quota.stamp then return nil end
  local level, last = struct.unpack('<dd', value, 6)
  return { level = level, last = last }
end

local quotas = unpack_quotas(ARGV[1])
local takes, least_ttl = ARGV[2], tonumber(ARGV[4])
local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local values = {} -- by key: what was read or written in this call, so that no key is read twice

local function read(key)
  if values[key] == nil then
    local value = redis.pcall('GET', key) -- a key of a foreign type answers with an error, and counts as unused
    values[key] = type(value) == 'string' and value
  end
  return values[key]
end

local function write(key, quota, state)
  local value = quota.stamp .. struct.pack('<dd', state.level, state.last)
  local ttl = math.max(math.ceil(reset_us(quota, state, now) / 1000), least_ttl)
  redis.call('SET', key, value, 'PX', string.format('%.0f', ttl))
  values[key] = value
end

local function ask(quota, state, cost, max_wait)
  if cost > quota.burst and max_wait <= 0 then return math.huge end
  return wait(quota, state, now, cost)
end

local verdicts, before = {}, {}
local at, charge = 1, 0
while at <= #takes do
  local max_wait, count, lines, longest
  max_wait, count, at = struct.unpack('<dB', takes, at)
  lines, longest = {}, 0
  for _ = 1, count do
    local number, cost
    number, cost, at = struct.unpack('<Bd', takes, at)
    charge = charge + 1
    local quota, value = quotas[number], read(KEYS[charge])
    local state = healed(quota, unpack_state(quota, value), now)
    lines[#lines + 1] = { key = KEYS[charge], quota = quota, state = state, cost = cost }
    longest = math.max(longest, ask(quota, state, cost, max_wait))
    before[#before + 1] = value
  end
  local allowed = longest <= max_wait and longest < math.huge
  for _, line in ipairs(lines) do
    if allowed then
      write(line.key, line.quota, book(line.quota, line.state, now, line.cost, longest))
    elseif line.state.moved and max_wait >= 0 then
      write(line.key, line.quota, line.state)
    end
  end
  verdicts[#verdicts + 1] = allowed and '1' or '0'
end

return { string.format('%.0f', now), table.concat(verdicts), unpack(before) }
