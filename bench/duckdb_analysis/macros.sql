-- Words that several parts use. The window is in the variables `since_us`, `until_us` and
-- `seconds`; whole hours of a very long one lie between `hours_from_us` and `hours_to_us`.

create macro is_long() as getvariable('seconds') >= 7200;

-- a long window counts whole tens of minutes, or whole hours, in the slice in which they begin
create macro begin_of_unit(us) as
  case when us >= getvariable('hours_from_us') and us < getvariable('hours_to_us')
    then us // 3600000000 * 3600000000 else us // 600000000 * 600000000 end;

create macro slice_of(us) as
  cast(greatest(0, least(9, floor(
    (us - getvariable('since_us')) / (getvariable('seconds') * 1e6 / 10)))) as int);

-- a sum of rates without one of them would be too low
create macro sum_of_all(value) as case when count(value) = count(*) then sum(value) end;

create macro sum_of_some(flag, value) as
  case when count(value) filter (flag) = count(*) filter (flag) then sum(value) filter (flag) end;

create macro rising_line(y, x) as
  case when count(y) >= 3 and regr_r2(y, x) >= 0.5 and regr_slope(y, x) > 0
    then regr_slope(y, x) end;

create macro per_useful_second(rate, busy, busy_s) as
  case when busy_s >= 1 and busy > 0 then rate / busy end;

-- NaN: not reported
create macro number_of(value) as case when not isnan(value) then value end;

-- of several rows of the same time the largest
create macro newest_of(value, us) as
  nullif(max({'us': us, 'value': coalesce(value, -1)}).value, -1);
