"""Forecasts the rate of each link: damped Holt or seasonal naive, whichever did better lately.

The rates are in bins of one minute over the last days. Methods:

- `holt`: Holt's linear trend with damping (Gardner and McKenzie, 1985): level and trend are
  smoothed, and each minute ahead counts `DAMPING` times as much of the trend as the one before;
- `day`, `week`: seasonal naive, the same minute yesterday or a week ago, multiplied by the ratio of
  the last hour to the same hour then.

Each method forecasts from origins all over the last day (rolling origin). The one with the smallest
mean absolute percentage error, `mape`, counts, and its forecast is inflated by it. A forecast is
the highest rate within the horizon, since that is what a placement has to carry.

Everything is an expression of Spark, since speck's own code does not run in its workers. A link's
series is one array; there are few links, and none has more than `HISTORY` minutes.
"""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from speck.analyzer.contracts import Contract, contract_of
from speck.metrics.dataset.schema import LINKS

HISTORY = timedelta(days=8)
"""How far back the dataset is read: a week, and the day over which the methods are compared."""
LEVEL, TREND, DAMPING = 0.5, 0.2, 0.9
"""Smoothing of the level and of the trend, and the damping, by minute."""
DAY, WEEK, HOUR = 1440, 7 * 1440, 60
ORIGIN_EVERY = 5
"""The minutes between two origins of the comparison of seasonal methods."""
LEAST_ORIGINS = 3
MOST_RATIO = 10.0
"""The last hour counts at most this many times the same hour of the season, or a part of it."""
UNPROVEN = 0.25
"""The error that a forecast is inflated by while there are too few origins."""

BINS = Contract(
    "rates by minute",
    {"broker_site": "string", "topic": "string", "minute": "bigint", "rate": "double"},
)

FORECASTS = Contract(
    "forecasts",
    {
        "site": "string",
        "topic": "string",
        "at": "timestamp",  # the end of the horizon
        "rate": "double",  # records per second: the highest within the horizon
        "low": "double",
        "high": "double",
        "method": "string",
        "mape": "double",  # null while there were too few origins
    },
)


def bin_rates(rows: DataFrame) -> DataFrame:
    """LINKS rows -> BINS: the records per second that arrive on each link, by minute.

    What a reader has taken and what waits for it is what arrived, from speck's jobs and from
    publishers outside alike. A link without readers has what its producers sent. A minute between
    polls that are far apart has their mean.
    """
    frame = contract_of(LINKS).check(rows, "bin rates of links")
    arrived = F.col("messages") + F.when(
        F.col("role") == "reader", F.coalesce("lag", F.lit(0))
    ).otherwise(0)
    order = Window.partitionBy("broker_site", "topic", "role", "client_id").orderBy("at", "epoch")
    at = F.unix_micros("at") / 1e6
    frame = frame.withColumns({"_at": at, "_arrived": arrived}).withColumns(
        {
            "_since": F.lag("_at").over(order),
            "_grown": F.col("_arrived") - F.lag("_arrived").over(order),
            "_same": F.col("epoch").eqNullSafe(F.lag("epoch").over(order)),
        }
    )
    frame = frame.where("_same and _grown >= 0 and _at > _since")
    minutes = F.sequence(F.floor(F.col("_since") / 60), F.floor(F.col("_at") / 60))
    frame = frame.withColumn("minute", F.explode(minutes))
    begin, end = F.col("minute") * 60, F.col("minute") * 60 + 60
    shared = F.greatest(F.lit(0.0), F.least("_at", end) - F.greatest("_since", begin))
    frame = frame.withColumns(
        {"_s": shared, "_part": F.col("_grown") * shared / (F.col("_at") - F.col("_since"))}
    )
    ends = frame.groupBy("broker_site", "topic", "role", "client_id", "minute").agg(
        (F.sum("_part") / F.sum("_s")).alias("rate"), F.sum("_s").alias("_s")
    )
    roles = ends.where("_s > 0").groupBy("broker_site", "topic", "minute")
    by_role = roles.agg(
        F.max(F.when(F.col("role") == "reader", F.col("rate"))).alias("_taken"),
        F.sum(F.when(F.col("role") == "producer", F.col("rate"))).alias("_sent"),
    )
    bins = by_role.withColumn("rate", F.coalesce("_taken", "_sent"))
    return BINS.check(bins.select(list(BINS.columns)), "bin rates of links")


def forecast(bins: DataFrame, ahead: timedelta) -> DataFrame:
    """BINS -> FORECASTS of each link's highest rate within `ahead` of its last whole minute."""
    step = "forecast rates of links"
    minutes = max(1, round(ahead.total_seconds() / 60))
    series = _collect_series(BINS.check(bins, step))
    frame = series.withColumn("_holt", _run_holt(minutes))
    paths = {name: _repeat_season(season, minutes) for name, season in _SEASONS.items()}
    frame = frame.withColumns({f"_{name}": path for name, path in paths.items()})
    methods = [_score_holt(minutes), *(_score_season(name, minutes) for name in _SEASONS)]
    usable = F.filter(F.array(*methods), lambda each: each["rate"].isNotNull())
    # an error that was measured comes before one that was not, and Holt before the seasons
    ranked = F.array_sort(F.transform(usable, _rank))
    # never empty: the first minute has a rate, so Holt has a level. A filter would be pushed below
    # all this, and compute each part of it many times.
    frame = frame.withColumn("_best", F.element_at(ranked, 1))
    error = F.coalesce("_best.mape", F.lit(UNPROVEN))
    rate = F.greatest(F.lit(0.0), F.col("_best.rate"))
    return FORECASTS.check(
        frame.select(
            F.col("broker_site").alias("site"),
            "topic",
            F.timestamp_seconds((F.col("_last") + 1 + minutes) * 60).alias("at"),
            rate.alias("rate"),
            F.greatest(F.lit(0.0), rate * (1 - error)).alias("low"),
            (rate * (1 + error)).alias("high"),
            F.col("_best.method").alias("method"),
            F.col("_best.mape").alias("mape"),
        ),
        step,
    )


_SEASONS = {"day": DAY, "week": WEEK}


def _rank(method: Column) -> Column:
    return F.struct(
        method["mape"].isNull().alias("unproven"),
        F.coalesce(method["mape"], F.lit(0.0)).alias("error"),
        method["order"].alias("order"),
        method["method"].alias("method"),
        method["rate"].alias("rate"),
        method["mape"].alias("mape"),
    )


def _collect_series(bins: DataFrame) -> DataFrame:
    """One row for each link: `y`, its rates by minute (null where unknown), and `n` of them."""
    link = ("broker_site", "topic")
    # the newest minute is not over: it would look like a fall
    newest = bins.groupBy(*link).agg(
        F.min("minute").alias("_first"), (F.max("minute") - 1).alias("_last")
    )
    grid = newest.where("_last >= _first").select(
        *link, "_last", F.explode(F.sequence("_first", "_last")).alias("minute")
    )
    dense = grid.join(bins, [*link, "minute"], "left")
    ordered = F.array_sort(F.collect_list(F.struct("minute", "rate")))
    collected = dense.groupBy(*link, "_last").agg(ordered.alias("_bins"))
    series = collected.withColumn("y", F.transform("_bins", lambda each: each["rate"]))
    return series.withColumn("n", F.size("y"))


def _run_holt(ahead: int) -> Column:
    """Smooth `y`: level and trend at its end, and the errors of forecasts from each origin of the
    last day."""
    # the origin of step i is i - 1: the state then is what the step begins with
    return F.expr(
        f"""
        aggregate(
          sequence(1, n),
          named_struct('level', cast(null as double), 'trend', 0D, 'errors', 0D, 'origins', 0L),
          (s, i) -> named_struct(
            'level', CASE
              WHEN y[i - 1] IS NULL THEN s.level + {DAMPING} * s.trend
              WHEN s.level IS NULL THEN y[i - 1]
              ELSE s.level + {DAMPING} * s.trend
                + {LEVEL} * (y[i - 1] - s.level - {DAMPING} * s.trend) END,
            'trend', CASE
              WHEN y[i - 1] IS NULL OR s.level IS NULL THEN {DAMPING} * s.trend
              ELSE {DAMPING} * s.trend
                + {TREND} * {LEVEL} * (y[i - 1] - s.level - {DAMPING} * s.trend) END,
            'errors', s.errors + {_if_target("s.level", ahead, _relative_error(ahead), "0D")},
            'origins', s.origins + {_if_target("s.level", ahead, "1L", "0L")}
          )
        )
        """
    )


def _if_target(level: str, ahead: int, then: str, otherwise: str) -> str:
    """`then` where the origin before step `i` has a known target within the last day."""
    target = f"y[i - 2 + {ahead}]"
    is_target = (
        f"{level} IS NOT NULL AND i > n - {DAY} - {ahead} AND i - 2 + {ahead} < n AND {target} > 0"
    )
    return f"CASE WHEN {is_target} THEN {then} ELSE {otherwise} END"


def _relative_error(ahead: int) -> str:
    forecast_then = f"greatest(0D, s.level + {_sum_damping(ahead)} * s.trend)"
    return f"abs({forecast_then} - y[i - 2 + {ahead}]) / y[i - 2 + {ahead}]"


def _sum_damping(ahead: int) -> float:
    """The trend's weight after so many minutes: the sum of `DAMPING` to the powers 1 to `ahead`."""
    return DAMPING * (1 - DAMPING**ahead) / (1 - DAMPING)


def _score_holt(ahead: int) -> Column:
    weight = _sum_damping(ahead)
    peak = F.greatest(
        F.col("_holt.level"), F.col("_holt.level") + F.lit(weight) * F.col("_holt.trend")
    )
    mape = F.when(
        F.col("_holt.origins") >= LEAST_ORIGINS, F.col("_holt.errors") / F.col("_holt.origins")
    )
    return _make_method(0, "holt", peak, mape)


def _repeat_season(season: int, ahead: int) -> Column:
    """Forecast one season ahead from the end of `y`, and from each origin of the last day: the
    highest rate within the horizon, and the errors."""
    origins = f"sequence(n - {DAY} - {ahead} + 1, n - {ahead}, {ORIGIN_EVERY})"
    usable = f"filter({origins}, o -> o > {season} AND o <= n - {ahead})"
    target, then = f"y[o - 1 + {ahead}]", f"y[o - 1 + {ahead} - {season}]"
    errors = f"""
        filter(
          transform(
            {usable},
            o -> CASE WHEN {target} > 0
              THEN abs({then} * {_ratio("o", season)} - {target}) / {target} END),
          e -> e IS NOT NULL)
    """
    window = f"slice(y, n - {season} + 1, {min(ahead, season)})"
    return F.expr(
        f"""
        CASE WHEN n > {season} THEN named_struct(
          'peak', array_max({window}) * {_ratio("n", season)},
          'errors', {errors}) END
        """
    )


def _ratio(origin: str, season: int) -> str:
    """The mean of the hour before an origin by that of the same hour a season before."""

    def mean(end: str) -> str:
        hour = f"slice(y, greatest(1, {end} - {HOUR} + 1), least({HOUR}, {end}))"
        hour = f"filter({hour}, x -> x IS NOT NULL)"
        return f"aggregate({hour}, 0D, (a, x) -> a + x, a -> a / size({hour}))"

    ratio = f"{mean(origin)} / nullif({mean(f'{origin} - {season}')}, 0)"
    return f"least({MOST_RATIO}D, greatest({1 / MOST_RATIO}D, {ratio}))"


def _score_season(name: str, ahead: int) -> Column:
    errors = F.col(f"_{name}.errors")
    mean = F.aggregate(errors, F.lit(0.0), lambda a, x: a + x) / F.size(errors)
    mape = F.when(F.size(errors) >= LEAST_ORIGINS, mean)
    return _make_method(1 + list(_SEASONS).index(name), name, F.col(f"_{name}.peak"), mape)


def _make_method(order: int, name: str, rate: Column, mape: Column) -> Column:
    return F.struct(
        F.lit(order).alias("order"),
        F.lit(name).alias("method"),
        rate.alias("rate"),
        mape.alias("mape"),
    )
