-- One bucket under one key, by the server's clock, in microseconds since 1970. A missing
-- key stands for a full bucket. Otherwise its value is
--
--   tb1:capacity:refill[:capacity:refill ...] seconds microseconds balance anchor [balance anchor ...]
--
-- that is the limits, the instant of the latest write, and for each limit a ledger
-- as package tokenbucket keeps it.
--
--   KEYS[1]  the bucket
--   ARGV[1]  the beginning of the value: tb1, the limits, and a space
--   ARGV[2]  tokens to take; below 0, tokens to give back; or one number for each limit,
--            with a space between them
--   ARGV[3]  the longest wait that is accepted, in microseconds: a cost that is refilled
--            within it is taken now, and the level is below 0 until then; -1 to take a cost in
--            any case; -2 to look: nothing is written, and the cost must be one that is refused
--   ARGV[4]  capacity; ARGV[5] refill; and so on for each limit
--   and last, for a lease, how many further tokens to take: only whole ones, and only as
--   many as the bucket holds besides the cost
--
-- The answer is 1 if the request was admitted, otherwise 0. After 1 there is a + and the
-- number of further tokens, if any were taken. Then come the time in seconds and
-- microseconds, and the value before, from which the caller computes level and wait. A
-- refusal writes nothing, unless the value was converted: see below.
--
-- The time to live is rounded up to milliseconds, so the bucket has had time to fill when
-- the key is dropped. It is 285 years at most, since clients count in nanoseconds.
--
-- Reading and writing a number takes longer than calculating with it, so numbers that are
-- text already stay text. Whole numbers are written by %.0f: %d has 32 bits on some
-- machines.

local key, policy, patience = KEYS[1], ARGV[1], ARGV[3] * 1000
local charges, looks = patience == -1000, patience == -2000
local cost, nextCost = 0, string.find(ARGV[2], ' ') and 1
if not nextCost then
  cost = ARGV[2] + 0
end
local clock = redis.call('TIME')
local seconds, micros = clock[1], clock[2]
local now = seconds * 1000000 + micros
local value = redis.call('GET', key)
local at -- where in the value the next ledger begins

-- ledger reads the ledger that begins at a position of the value. It returns the balance,
-- nil if there is no ledger, the anchor as text, and where the next ledger begins.
local function ledger(from)
  local balance, anchor, after = string.match(value, '^ (%-?%d[%d.e+-]*) (%d+)()', from)
  return balance and balance + 0, anchor, after
end

-- write stores a value for the seconds that the bucket needs to fill. It returns nil, or
-- SET's error without the prefix that servers before Redis 7 add: clients recognise
-- READONLY only as a prefix.
local function write(text, filling)
  local ttl = math.min(math.max(math.ceil(filling * 1000), 1), 9e12)
  local failure = redis.pcall('SET', key, text, 'PX', string.format('%.0f', ttl)).err
  return failure and redis.error_reply((string.gsub(failure, '^@user_script: *%d+: %-', '')))
end

local function notBucket()
  return redis.error_reply('NOTBUCKET the value is not a bucket')
end

if value then
  local s, m
  s, m, at = string.match(value, '^tb1:[^ ]+ (%d+) (%d+)()')
  if not at then
    return notBucket()
  end
  local latest = s * 1000000 + m
  if latest > now or string.sub(value, 1, #policy) ~= policy then
    -- The clock stepped back, or the limits have changed: the bucket keeps its level at
    -- the later instant, up to the new capacities, and refills from now on. That is
    -- written even if the request is refused, so that the refill counts from now.
    local states, filling, limit = '', 0, 4 -- limit: where in the value the next limit begins
    for i = 4, #ARGV - 1, 2 do
      local level = ARGV[i] + 0
      local capacity, refill, balance, anchor
      if limit and string.sub(value, limit, limit) == ':' then
        capacity, refill, limit = string.match(value, '^:(%d[%d.e+-]*):(%d[%d.e+-]*)()', limit)
        balance, anchor, at = ledger(at)
        if not (limit and balance) then
          return notBucket()
        end
        level = math.min(level, capacity + 0, balance + (math.max(now, latest) - anchor) * 1000 * refill / 1e9)
      end
      filling = math.max(filling, (ARGV[i] - level) / ARGV[i + 1])
      states = states .. string.format(' %.17g %.0f', level, now)
    end
    value = policy .. seconds .. ' ' .. micros
    at = #value + 1
    value = value .. states
    local failure = not looks and write(value, filling)
    if failure then
      return failure
    end
  end
end

local admitted = '1 '
if #ARGV % 2 == 0 then -- a lease: three arguments, two for each limit, and one more
  local least, from = cost + ARGV[#ARGV], at
  for i = 4, #ARGV - 1, 2 do
    local level = ARGV[i] + 0
    if from then
      local balance, anchor
      balance, anchor, from = ledger(from)
      if not balance then
        return notBucket()
      end
      level = math.min(level, balance + (now - anchor) * 1000 * ARGV[i + 1] / 1e9)
    end
    least = math.min(least, level)
  end
  local further = math.floor(least - cost)
  if further > 0 then
    cost, admitted = cost + further, string.format('1+%.0f ', further)
  end
end

local filling, states = 0, ''
for i = 4, #ARGV - 1, 2 do
  local capacity, refill = ARGV[i] + 0, ARGV[i + 1] + 0
  local balance, anchor = capacity, now
  if at then
    balance, anchor, at = ledger(at)
    if not balance then
      return notBucket()
    end
  end
  local elapsed = (now - anchor) * 1000
  if nextCost then
    cost, nextCost = string.match(ARGV[2], '(%S+) ?()', nextCost)
    cost = cost + 0
  end

  -- Limit.pays
  local slack = 2 ^ -50 * math.max(capacity, -balance)
  if not charges and (cost > capacity or (cost > 0 and (elapsed + patience) * refill < (cost - slack - balance) * 1e9)) then
    return '0 ' .. seconds .. ' ' .. micros .. ' ' .. (value or '')
  end

  -- Limit.spend, Limit.refund and Limit.charge
  local level = balance + elapsed * refill / 1e9
  if elapsed * refill >= (capacity - balance) * 1e9 then
    balance, anchor, level = capacity, string.format('%.0f', now), capacity
  elseif elapsed > 2 ^ 46 or (balance < -1024 * capacity and level > balance / 2) then
    balance, anchor = level, string.format('%.0f', now)
  end
  balance, level = math.max(balance - cost, -2 ^ 960), level - cost
  if level >= capacity then
    balance, anchor, level = capacity, string.format('%.0f', now), capacity
  end

  if (capacity - level) / refill > filling then
    filling = (capacity - level) / refill
  end
  local number = (balance % 1 == 0 and balance > -2 ^ 53) and '%.0f' or '%.17g'
  states = states .. ' ' .. string.format(number, balance) .. ' ' .. anchor
end

if at and at <= #value then
  return notBucket()
elseif filling > 0 then
  local failure = write(policy .. seconds .. ' ' .. micros .. states, filling)
  if failure then
    return failure
  end
elseif value then
  redis.call('DEL', key)
end
return admitted .. seconds .. ' ' .. micros .. ' ' .. (value or '')
