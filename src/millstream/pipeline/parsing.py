"""Lines into events, as Spark expressions: no Python runs per line.

Every record becomes one row. `problem` is null for an event that counts; otherwise it says
why it does not: `unparsable`, or an event time that is `ahead` of or `late` for its record's
own timestamp. That is decided from the row alone, so that every query, and every repetition
of a batch, decides the same; and before any watermark, which one wrong clock would move.
"""

import functools
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from millstream.pipeline.globs import glob_pattern
from millstream.pipeline.layouts import (
    ALIASES,
    JSON_BEGINS,
    LAYOUTS,
    LOGFMT_BEGINS,
    LOGFMT_PAIR,
    TEXTS,
)
from millstream.pipeline.spec import SourceRule, Spec

LINE_BYTES_MAX: Final = 64 * 1024
# Between the groups of a matched line; a line that has it already is not text.
_SEPARATOR: Final = "\x01"
UNKNOWN: Final = "unknown"
CUSTOM: Final = "custom"
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
_MAPPED: Final = ("logfmt", CUSTOM)
# Columns of a record that every step hands on.
_CARRIED: Final = (
    *("topic", "partition", "offset", "record_time", "source", "value", "not_text", "format"),
)

# What Spark's own defaults would turn into a stopped query or a wrong time.
SESSION_SETTINGS: Final = {
    # A logfmt line may name a key twice.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
}


def parse_events(records: DataFrame, spec: Spec) -> DataFrame:
    """One row for each record of the source `millstream`, with what could be read from it."""
    lines = _lines(records)
    formatted = lines.withColumn("format", _format(spec.sources))
    if any(rule.function for rule in spec.sources):
        from millstream.pipeline.custom import parse_custom

        formatted = parse_custom(formatted, spec.sources)
    else:
        formatted = formatted.withColumn("fields", F.lit(None).cast("map<string,string>"))
    parted = formatted.withColumns(
        {"parts": _parts(), "json": _json(spec), "fields": _fields_of_logfmt()}
    )
    return _with_problem(_columns(_texts(parted, spec), spec), spec)


def _lines(records: DataFrame) -> DataFrame:
    value = F.col("value")
    text = value.cast("string")
    not_text = (
        F.when(value.isNull() | (F.octet_length(value) == 0), "empty")
        .when(F.octet_length(value) > LINE_BYTES_MAX, f"longer than {LINE_BYTES_MAX:,} bytes")
        .when(~F.is_valid_utf8(text), "not UTF-8")
        .when(text.contains(_SEPARATOR), "control characters")
    )
    told = records.select(
        "topic",
        "partition",
        "offset",
        F.col("timestamp").alias("record_time"),
        F.coalesce(F.col("key").cast("string"), F.col("topic")).alias("source"),
        "value",
        not_text.alias("not_text"),
    )
    return told.withColumn("line", F.when(F.col("not_text").isNull(), F.rtrim(text)))


def _format(rules: tuple[SourceRule, ...]) -> Column:
    line = F.col("line")
    found = F.when(line.isNull(), UNKNOWN)
    # The first character tells most lines from most formats, for less than an expression.
    found = found.when(line.startswith("{") | ((line < "!") & line.rlike(JSON_BEGINS)), "json")
    for name, layout in LAYOUTS.items():
        begins = line.rlike(layout.begins)
        found = found.when(_begins_within(layout.first) & begins if layout.first else begins, name)
    detected = found.when(line.rlike(LOGFMT_BEGINS), "logfmt").otherwise(UNKNOWN)
    given = [rule for rule in rules if rule.format != "auto" or rule.function]
    if not given:
        return detected
    chosen: Column | None = None
    for rule in given:
        is_match = F.col("source").rlike(glob_pattern(rule.match))
        value = F.lit(CUSTOM if rule.function else rule.format)
        if rule.format == "text" and not rule.function:
            value = F.when(detected.isin(*TEXTS), detected).otherwise(value)
        chosen = F.when(is_match, value) if chosen is None else chosen.when(is_match, value)
    assert chosen is not None
    return chosen.otherwise(detected)


def _begins_within(ranges: tuple[str, ...]) -> Column:
    first = F.substring("line", 1, 1)
    found = [first.between(each[0], each[-1]) for each in ranges]
    return functools.reduce(Column.__or__, found)


def _parts() -> Column:
    """The groups of the line's layout; one part alone means it does not match.

    One replacement and one split: a `regexp_extract` for each group would match the line
    anew for each.
    """
    parts: Column | None = None
    for name, layout in LAYOUTS.items():
        groups = _SEPARATOR.join(f"${number + 1}" for number in range(len(layout.columns)))
        replaced = F.regexp_replace("line", layout.pattern, groups)
        value = F.split(replaced, _SEPARATOR)
        is_format = F.col("format") == name
        parts = F.when(is_format, value) if parts is None else parts.when(is_format, value)
    assert parts is not None
    return parts


def _json(spec: Spec) -> Column:
    """The fields of a JSON line that columns and gauges are made from, each in its place.

    In a map of all fields Spark would look for every name that there might be, one by one.
    """
    schema = StructType([StructField(name, StringType()) for name in _json_names(spec)])
    return F.when(F.col("format") == "json", F.from_json("line", schema))


def _json_names(spec: Spec) -> list[str]:
    names = [alias for aliases in ALIASES.values() for alias in aliases]
    # Spark tells names of a structure not by their case.
    known = {name.lower() for name in names}
    for gauge in spec.gauges:
        if gauge.lower() not in known:
            known.add(gauge.lower())
            names.append(gauge)
    return names


def _fields_of_logfmt() -> Column:
    pairs = F.regexp_extract_all("line", F.lit(LOGFMT_PAIR), F.lit(0))
    keys = F.transform(pairs, lambda pair: F.substring_index(pair, "=", 1))
    values = F.transform(pairs, _logfmt_value)
    is_logfmt = F.col("format") == "logfmt"
    return F.when(is_logfmt, F.map_from_arrays(keys, values)).otherwise(F.col("fields"))


def _all_fields() -> Column:
    """A map of all fields; only the table has use for it."""
    return F.when(F.col("format") == "json", F.from_json("line", "map<string,string>")).otherwise(
        F.col("fields")
    )


def _gauges(spec: Spec) -> Column:
    """What a line says of each gauge, as numbers; where `fields` are left out so are these."""
    if spec.mask or not spec.gauges:
        return F.lit(None).cast("array<double>")
    names = set(_json_names(spec))
    found = []
    for name in spec.gauges:
        told = (
            F.col("json")[name]
            if name in names
            else F.try_element_at(F.from_json("line", "map<string,string>"), F.lit(name))
        )
        mapped = F.when(F.col("format").isin(*_MAPPED), F.try_element_at("fields", F.lit(name)))
        text = F.when(F.col("format") == "json", told).otherwise(mapped)
        found.append(text.try_cast("double"))
    return F.array(*found)


def _logfmt_value(pair: Column) -> Column:
    value = F.substring(pair, F.instr(pair, "=") + 1, F.length(pair))
    inner = F.substring(value, F.lit(2), F.length(value) - 2)
    unescaped = F.regexp_replace(inner, r"\\(.)", "$1")
    return F.when(value.startswith('"'), unescaped).otherwise(value)


def _part(name: str) -> Column:
    """A column as text, from whichever format the line has."""
    found: Column | None = None
    for format_name, layout in LAYOUTS.items():
        if name in layout.columns:
            value = F.get("parts", F.lit(layout.columns.index(name)))
            is_format = F.col("format") == format_name
            found = F.when(is_format, value) if found is None else found.when(is_format, value)
    if name in ALIASES:
        told = F.coalesce(*(F.col("json")[alias] for alias in ALIASES[name]))
        is_json = F.col("format") == "json"
        found = F.when(is_json, told) if found is None else found.when(is_json, told)
        values = [F.try_element_at("fields", F.lit(alias)) for alias in ALIASES[name]]
        found = found.when(F.col("format").isin(*_MAPPED), F.coalesce(*values))
    assert found is not None, name
    return found


def _texts(parted: DataFrame, spec: Spec) -> DataFrame:
    """Every column as text, once, null for nothing and for `-`.

    What refers to one of them later is a name, not a copy: Spark plans each micro-batch anew,
    so the size of expressions is paid again and again.
    """
    names = sorted({*ALIASES, *(name for each in LAYOUTS.values() for name in each.columns)})
    # Null where the line is no access line after all.
    access_agent = F.get("parts", F.lit(LAYOUTS["access"].columns.index("agent")))
    found = parted.select(
        *_CARRIED,
        _all_fields().alias("fields"),
        _gauges(spec).alias("gauges"),
        access_agent.alias("access_agent"),
        *(_part(name).alias(f"text_{name}") for name in names),
    )
    # A step of its own: in one, Spark would look for each part twice.
    said = [F.when(~_text(name).isin("", "-"), _text(name)).alias(f"text_{name}") for name in names]
    return found.select(*_CARRIED, "fields", "gauges", "access_agent", *said)


def _text(name: str) -> Column:
    return F.col(f"text_{name}")


def _columns(texts: DataFrame, spec: Spec) -> DataFrame:
    address, user, agent = _text("address"), _text("user"), _text("agent")
    visitor = F.coalesce(user, F.concat_ws("|", address, agent))
    is_seen = user.isNotNull() | address.isNotNull()
    is_access = F.col("format") == "access"
    # Some servers write the time a request took, in seconds, at the end of the line.
    request_seconds = F.regexp_extract(_text("rest"), r"^(\d+\.\d+)$", 1).try_cast("double")
    duration = F.coalesce(_text("duration").try_cast("double"), request_seconds * 1000)
    return texts.select(
        *("topic", "partition", "offset", "record_time", "source", "value", "not_text"),
        F.when(is_access & (F.col("access_agent") == ""), "common")
        .when(is_access & (F.col("access_agent") != ""), "combined")
        .when(F.col("format") == "isosyslog", "syslog")
        .when(F.col("format").isin(*TEXTS), "text")
        .otherwise(F.col("format"))
        .alias("format"),
        F.when(F.col("not_text").isNull(), _event_time()).alias("event_time"),
        F.coalesce(_text("host"), F.substring_index("source", "/", 1)).alias("host"),
        _text("service").alias("service"),
        _text("program").alias("program"),
        _masked_address(address, spec).alias("address"),
        _masked_user(user, spec).alias("user"),
        F.when(is_seen, _hash(visitor, spec)).alias("visitor"),
        _text("method").alias("method"),
        _text("path").alias("path"),
        (F.lit(None).cast("string") if "query" in spec.mask else _text("query")).alias("query"),
        _text("status").try_cast("int").alias("status"),
        _text("size").try_cast("long").alias("size_bytes"),
        duration.alias("duration_ms"),
        F.coalesce(F.lower(_text("level")), _severity(_text("priority"))).alias("level"),
        _text("referrer").alias("referrer"),
        agent.alias("agent"),
        _text("message").alias("message"),
        (F.lit(None).cast("map<string,string>") if spec.mask else F.col("fields")).alias("fields"),
        "gauges",
        user.alias("plain_user"),
    )


def _event_time() -> Column:
    text = _text("time")
    access = _access_time(text)
    return (
        F.when(F.col("format") == "access", access)
        .when(F.col("format").isin("rfc3164", "errorlog"), _time_of_words())
        .when(
            F.col("format") == "shortdate",
            F.try_to_timestamp(F.translate(_text("short"), "/: ", ""), F.lit("yyMMddHHmmss")),
        )
        .otherwise(_numeric_or_iso_time(text))
    )


def _access_time(text: Column) -> Column:
    """Of `21/Sep/2026:15:59:58 +0200`; put in Spark's own order, which it reads much sooner.

    What is not quite so is left to a pattern.
    """
    month = (F.instr(F.lit(_MONTHS), F.substring(text, 4, 3)) + 2) / 3
    numbered = F.lpad(month.cast("int").cast("string"), 2, "0")
    ordered = F.concat(
        *(F.substring(text, 8, 4), F.lit("-"), numbered, F.lit("-"), F.substring(text, 1, 2)),
        *(F.lit("T"), F.substring(text, 13, 8), F.substring(text, 22, 3), F.lit(":")),
        F.substring(text, 25, 2),
    )
    is_usual = text.rlike(r"^\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}$")
    pattern = F.try_to_timestamp(text, F.lit("dd/MMM/yyyy:HH:mm:ss Z"))
    return F.when(is_usual, ordered.try_cast("timestamp")).otherwise(pattern)


def _numeric_or_iso_time(text: Column) -> Column:
    number = text.try_cast("decimal(38,9)")
    # How large a number of our days is tells its unit, from seconds to nanoseconds.
    micros = (
        F.when(number < 10**8, None)
        .when(number < 10**11, number * 1_000_000)
        .when(number < 10**14, number * 1_000)
        .when(number < 10**17, number)
        .when(number < 9 * 10**18, number / 1_000)
    )
    # Most have none of these, and need not be looked through and copied.
    is_odd = text.contains(" ") | text.contains(",") | text.contains("/")
    plain = F.regexp_replace(F.translate(text, ",/", ".-"), r" (?=[+-]|Z)", "")
    is_iso = text.rlike(r"^\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d")
    iso = F.when(is_odd, plain).otherwise(text).try_cast("timestamp")
    return F.when(is_iso, iso).otherwise(F.timestamp_micros(micros.try_cast("long")))


def _time_of_words() -> Column:
    """Month, day and clock; without a year, of the one that brings it closest to the record."""
    recorded = F.col("record_time")
    clock = F.concat_ws(" ", _text("month"), _text("day"), _text("clock"))
    # Half a year off the record is the other side of a New Year.
    far = F.month(recorded) - F.month(F.try_to_timestamp(_text("month"), F.lit("MMM")))
    nearest = F.year(recorded) + F.when(far > 6, 1).when(far < -6, -1).otherwise(0)
    year = F.coalesce(_text("year"), nearest.cast("string"))
    return F.try_to_timestamp(F.concat_ws(" ", year, clock), F.lit("yyyy MMM d HH:mm:ss"))


def _severity(priority: Column) -> Column:
    names = ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"]
    return F.get(F.array(*map(F.lit, names)), priority.try_cast("int") % 8)


def _hash(text: Column, spec: Spec) -> Column:
    return F.substring(F.sha2(F.concat(F.lit(spec.salt + "|"), text), 256), 1, 16)


def _masked_address(address: Column, spec: Spec) -> Column:
    if "address" not in spec.mask:
        return address
    # The last byte of IPv4, all but the first three groups of IPv6.
    short = F.regexp_replace(address, r"^(\d+\.\d+\.\d+)\.\d+$", "$1.0")
    return F.regexp_replace(short, r"^((?:[0-9a-fA-F]*:){3})[0-9a-fA-F:.]*$", "$1:")


def _masked_user(user: Column, spec: Spec) -> Column:
    return _hash(user, spec) if "user" in spec.mask else user


def _with_problem(events: DataFrame, spec: Spec) -> DataFrame:
    event, record = F.col("event_time"), F.col("record_time")
    detail = F.coalesce(
        F.col("not_text"),
        F.when(F.col("format") == UNKNOWN, "no known format"),
        F.when(event.isNull(), F.concat(F.lit("no time as "), F.col("format"))),
    )
    ahead = F.expr(f"INTERVAL {spec.ahead_ms * 1000} MICROSECONDS")
    late = F.expr(f"INTERVAL {spec.late_ms * 1000} MICROSECONDS")
    problem = (
        F.when(F.col("detail").isNotNull(), "unparsable")
        .when(event > record + ahead, "ahead")
        .when(event < record - late, "late")
    )
    stored = _masked_value(spec)
    return (
        events.withColumn("detail", detail)
        .withColumn("problem", problem)
        .withColumn("value", stored)
        .drop("not_text", "plain_user")
    )


def _masked_value(spec: Spec) -> Column:
    """The line as it may be stored: nothing of an event, an unread line without its addresses.

    A user's name in a line that nobody could read cannot be found.
    """
    value = F.col("value")
    if not spec.mask:
        return value
    text = value.cast("string")
    if "address" in spec.mask:
        text = F.regexp_replace(text, r"\b(\d{1,3}\.\d{1,3}\.\d{1,3})\.\d{1,3}\b", "$1.0")
    if "query" in spec.mask:
        text = F.regexp_replace(text, r"\?[^\s\"]*", "?")
    if "user" in spec.mask:
        known = F.col("plain_user")
        text = F.when(known.isNotNull(), F.replace(text, known, _hash(known, spec))).otherwise(text)
    is_readable = F.is_valid_utf8(value.cast("string"))
    return F.when(is_readable & F.col("problem").isNotNull(), text.cast("binary"))


def dead_letter_headers() -> Column:
    """Of a line that does not count: why, and where it stands."""

    def header(name: str, value: Column) -> Column:
        text = F.coalesce(value.cast("string"), F.lit(""))
        return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))

    return F.array(
        header("reason", F.col("problem")),
        header("detail", F.col("detail")),
        header("topic", F.col("topic")),
        header("partition", F.col("partition")),
        header("offset", F.col("offset")),
        header("record_time", F.col("record_time")),
        header("event_time", F.col("event_time")),
    )
