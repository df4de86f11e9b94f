-- Functions that DataFusion has under another name or not at all, in words that it has. Where what they are made of compiles, they do.

-- Parts of dates and times.
CREATE MACRO year(x) AS date_part('year', x);
CREATE MACRO quarter(x) AS date_part('quarter', x);
CREATE MACRO month(x) AS date_part('month', x);
CREATE MACRO week(x) AS date_part('week', x);
CREATE MACRO weekofyear(x) AS date_part('week', x);
CREATE MACRO day(x) AS date_part('day', x);
CREATE MACRO dayofmonth(x) AS date_part('day', x);
CREATE MACRO dayofweek(x) AS date_part('dow', x);
CREATE MACRO weekday(x) AS date_part('dow', x);
CREATE MACRO isodow(x) AS date_part('isodow', x);
CREATE MACRO dayofyear(x) AS date_part('doy', x);
CREATE MACRO isoyear(x) AS date_part('isoyear', x);
CREATE MACRO yearweek(x) AS date_part('isoyear', x) * 100 + date_part('week', x);
CREATE MACRO decade(x) AS date_part('decade', x);
CREATE MACRO timezone(z, t) AS kelpie_at_time_zone(t, z);
CREATE MACRO era(x) AS date_part('era', x);
CREATE MACRO julian(x) AS date_part('julian', x);
CREATE MACRO century(x) AS date_part('century', x);
CREATE MACRO millennium(x) AS date_part('millennium', x);
CREATE MACRO hour(x) AS date_part('hour', x);
CREATE MACRO minute(x) AS date_part('minute', x);
CREATE MACRO second(x) AS date_part('second', x);
CREATE MACRO millisecond(x) AS date_part('millisecond', x);
CREATE MACRO microsecond(x) AS date_part('microsecond', x);
CREATE MACRO epoch(x) AS date_part('epoch', x);
CREATE MACRO datepart(part, x) AS date_part(part, x);
CREATE MACRO datetrunc(part, x) AS date_trunc(part, x);
CREATE MACRO dayname(x) AS to_char(x, '%A');
CREATE MACRO monthname(x) AS to_char(x, '%B');
CREATE MACRO last_day(x) AS CAST(date_trunc('month', x) + INTERVAL '1 month' - INTERVAL '1 day' AS DATE);
CREATE MACRO date_add(x, i) AS x + i;
CREATE MACRO date_sub(x, i) AS x - i;
CREATE MACRO datesub(x, i) AS x - i;
CREATE MACRO days_in_month(x) AS date_part('day', date_trunc('month', x) + INTERVAL '1 month' - INTERVAL '1 day');
CREATE MACRO timezone_hour(x) AS date_part('timezone_hour', x);
CREATE MACRO timezone_minute(x) AS date_part('timezone_minute', x);
CREATE MACRO to_millennia(n) AS interval_times(INTERVAL '1000 years', n);
CREATE MACRO ago(i) AS now() - i;
CREATE MACRO current_localtimestamp() AS CAST(now() AS TIMESTAMP(6));
CREATE MACRO current_localtime() AS CAST(CAST(now() AS TIMESTAMP(6)) AS TIME);
CREATE MACRO "date of days"(n) AS CAST(CAST(n AS INTEGER) AS DATE);
CREATE MACRO make_timestamp_ms(n) AS CAST(CAST(n AS BIGINT) AS TIMESTAMP(3));
CREATE MACRO make_timestamp_ns(n) AS CAST(CAST(n AS BIGINT) AS TIMESTAMP(9));
CREATE MACRO make_timestamptz(y, m, d, h, mi, s) AS
    CAST(CAST(make_date(y, m, d) AS TIMESTAMP(6)) + interval_times(INTERVAL '1 hour', h) + interval_times(INTERVAL '1 minute', mi)
         + interval_times(INTERVAL '1 second', s) AS TIMESTAMP WITH TIME ZONE);
CREATE MACRO to_years(n) AS interval_times(INTERVAL '1 year', n);
CREATE MACRO to_months(n) AS interval_times(INTERVAL '1 month', n);
CREATE MACRO to_weeks(n) AS interval_times(INTERVAL '1 week', n);
CREATE MACRO to_days(n) AS interval_times(INTERVAL '1 day', n);
CREATE MACRO to_hours(n) AS interval_times(INTERVAL '1 hour', n);
CREATE MACRO to_minutes(n) AS interval_times(INTERVAL '1 minute', n);
CREATE MACRO to_seconds(n) AS interval_times(INTERVAL '1 second', n);
CREATE MACRO to_milliseconds(n) AS interval_times(INTERVAL '1 millisecond', n);
CREATE MACRO to_microseconds(n) AS interval_times(INTERVAL '1 microsecond', n);
CREATE MACRO to_quarters(n) AS interval_times(INTERVAL '3 months', n);
CREATE MACRO to_decades(n) AS interval_times(INTERVAL '10 years', n);
CREATE MACRO to_centuries(n) AS interval_times(INTERVAL '100 years', n);
CREATE MACRO nanosecond(x) AS date_part('nanosecond', x);
CREATE MACRO make_timestamp(n) AS CAST(CAST(n AS BIGINT) AS TIMESTAMP(6));
CREATE MACRO make_timestamp(y, m, d, h, mi, s) AS
    CAST(make_date(y, m, d) AS TIMESTAMP(6)) + interval_times(INTERVAL '1 hour', h) + interval_times(INTERVAL '1 minute', mi)
    + interval_times(INTERVAL '1 second', s);
CREATE MACRO age(x) AS age(CAST(current_date() AS TIMESTAMP(6)), x);
CREATE MACRO "date"(x) AS CAST(x AS DATE);
CREATE MACRO today() AS current_date();
CREATE MACRO get_current_timestamp() AS now();
CREATE MACRO transaction_timestamp() AS now();

-- Bounds of a unit that lie between two moments; a week is seven whole days.
CREATE MACRO "date_diff millennium"(a, b) AS CAST(date_part('year', b) / 1000 - date_part('year', a) / 1000 AS BIGINT);
CREATE MACRO "date_diff century"(a, b) AS CAST(date_part('year', b) / 100 - date_part('year', a) / 100 AS BIGINT);
CREATE MACRO "date_diff decade"(a, b) AS CAST(date_part('year', b) / 10 - date_part('year', a) / 10 AS BIGINT);
CREATE MACRO "date_diff year"(a, b) AS CAST(date_part('year', b) - date_part('year', a) AS BIGINT);
CREATE MACRO "date_diff quarter"(a, b) AS
    CAST((date_part('year', b) - date_part('year', a)) * 4 + date_part('quarter', b) - date_part('quarter', a) AS BIGINT);
CREATE MACRO "date_diff month"(a, b) AS
    CAST((date_part('year', b) - date_part('year', a)) * 12 + date_part('month', b) - date_part('month', a) AS BIGINT);
CREATE MACRO "date_diff week"(a, b) AS (CAST(b AS DATE) - CAST(a AS DATE)) / 7;
CREATE MACRO "date_diff day"(a, b) AS CAST(b AS DATE) - CAST(a AS DATE);
CREATE MACRO "date_diff hour"(a, b) AS
    kelpie_time_between(date_trunc('hour', a), date_trunc('hour', b)) / 3600000000;
CREATE MACRO "date_diff minute"(a, b) AS
    kelpie_time_between(date_trunc('minute', a), date_trunc('minute', b)) / 60000000;
CREATE MACRO "date_diff second"(a, b) AS
    kelpie_time_between(date_trunc('second', a), date_trunc('second', b)) / 1000000;
CREATE MACRO "date_diff millisecond"(a, b) AS
    kelpie_time_between(date_trunc('millisecond', a), date_trunc('millisecond', b)) / 1000;
CREATE MACRO "date_diff microsecond"(a, b) AS
    kelpie_time_between(date_trunc('microsecond', a), date_trunc('microsecond', b));

-- Whole units between two moments.
CREATE MACRO "date_sub millennium"(a, b) AS kelpie_whole_months(a, b) / 12000;
CREATE MACRO "date_sub century"(a, b) AS kelpie_whole_months(a, b) / 1200;
CREATE MACRO "date_sub decade"(a, b) AS kelpie_whole_months(a, b) / 120;
CREATE MACRO "date_sub year"(a, b) AS kelpie_whole_months(a, b) / 12;
CREATE MACRO "date_sub quarter"(a, b) AS kelpie_whole_months(a, b) / 3;
CREATE MACRO "date_sub month"(a, b) AS kelpie_whole_months(a, b);
CREATE MACRO "date_sub week"(a, b) AS (CAST(CAST(b AS TIMESTAMP(6)) AS BIGINT) - CAST(CAST(a AS TIMESTAMP(6)) AS BIGINT)) / 604800000000;
CREATE MACRO "date_sub day"(a, b) AS (CAST(CAST(b AS TIMESTAMP(6)) AS BIGINT) - CAST(CAST(a AS TIMESTAMP(6)) AS BIGINT)) / 86400000000;
CREATE MACRO "date_sub hour"(a, b) AS kelpie_time_between(date_trunc('microsecond', a), date_trunc('microsecond', b)) / 3600000000;
CREATE MACRO "date_sub minute"(a, b) AS kelpie_time_between(date_trunc('microsecond', a), date_trunc('microsecond', b)) / 60000000;
CREATE MACRO "date_sub second"(a, b) AS kelpie_time_between(date_trunc('microsecond', a), date_trunc('microsecond', b)) / 1000000;
CREATE MACRO "date_sub millisecond"(a, b) AS kelpie_time_between(date_trunc('microsecond', a), date_trunc('microsecond', b)) / 1000;
CREATE MACRO "date_sub microsecond"(a, b) AS kelpie_time_between(date_trunc('microsecond', a), date_trunc('microsecond', b));

-- Texts.
CREATE MACRO strlen(s) AS octet_length(s);
CREATE MACRO unicode(s) AS ascii(s);
CREATE MACRO ord(s) AS ascii(s);
CREATE MACRO lcase(s) AS lower(s);
CREATE MACRO ucase(s) AS upper(s);
CREATE MACRO prefix(s, t) AS starts_with(s, t);
CREATE MACRO suffix(s, t) AS ends_with(s, t);
CREATE MACRO string_split(s, t) AS
    CASE WHEN s IS NULL THEN NULL WHEN t IS NULL OR (s = '' AND t <> '') THEN array_append(string_to_array('', ','), s)
         ELSE string_to_array(s, nullif(t, '')) END;
CREATE MACRO str_split(s, t) AS
    CASE WHEN s IS NULL THEN NULL WHEN t IS NULL OR (s = '' AND t <> '') THEN array_append(string_to_array('', ','), s)
         ELSE string_to_array(s, nullif(t, '')) END;
CREATE MACRO split(s, t) AS
    CASE WHEN s IS NULL THEN NULL WHEN t IS NULL OR (s = '' AND t <> '') THEN array_append(string_to_array('', ','), s)
         ELSE string_to_array(s, nullif(t, '')) END;
CREATE MACRO regexp_matches(s, p) AS regexp_like(s, p);
CREATE MACRO regexp_matches(s, p, o) AS regexp_like(s, p, o);
CREATE MACRO regexp_full_match(s, p) AS regexp_like(s, '^(?:' || p || ')$');
CREATE MACRO regexp_extract(s, p) AS
    CASE WHEN s IS NOT NULL AND p IS NOT NULL THEN coalesce(array_element(regexp_match(s, '(' || p || ')'), 1), '') END;
CREATE MACRO regexp_extract(s, p, n) AS
    CASE WHEN s IS NOT NULL AND p IS NOT NULL THEN coalesce(array_element(regexp_match(s, '(' || p || ')'), n + 1), '') END;
CREATE MACRO regexp_extract(s, p, n, o) AS
    CASE WHEN s IS NOT NULL AND p IS NOT NULL THEN coalesce(array_element(regexp_match(s, '(' || p || ')', o), n + 1), '') END;
CREATE MACRO "encode text"(s) AS CAST(s AS BYTEA);
CREATE MACRO "sha256 digits"(s) AS encode(digest(s, 'sha256'), 'hex');
CREATE MACRO "decode bytes"(b) AS CAST(b AS VARCHAR);
CREATE MACRO regexp_split_to_table(s, p) AS unnest(string_split_regex(s, p));
CREATE MACRO editdist3(s, t) AS levenshtein(s, t);
CREATE MACRO base64(b) AS encode(b, 'base64pad');
CREATE MACRO to_base64(b) AS encode(b, 'base64pad');
CREATE MACRO from_base64(s) AS decode(s, 'base64pad');
CREATE MACRO pg_typeof(x) AS lower(typeof(x));
CREATE MACRO gen_random_uuid() AS uuid();
CREATE MACRO uuidv4() AS uuid();

-- Numbers.
CREATE MACRO greatest_common_divisor(x, y) AS gcd(x, y);
CREATE MACRO least_common_multiple(x, y) AS lcm(x, y);
CREATE MACRO truncate(x) AS trunc(x);
CREATE MACRO add(x, y) AS x + y;
CREATE MACRO subtract(x, y) AS x - y;
CREATE MACRO multiply(x, y) AS x * y;
CREATE MACRO divide(x, y) AS x / y;
CREATE MACRO fdiv(x, y) AS floor(CAST(x AS DOUBLE) / y);
CREATE MACRO fmod(x, y) AS x - y * floor(CAST(x AS DOUBLE) / y);
CREATE MACRO ceiling(x) AS ceil(x);
CREATE MACRO sign(x) AS signum(x);
CREATE MACRO mod(x, y) AS x % y;
CREATE MACRO xor(x, y) AS x ^ y;
CREATE MACRO even(x) AS CASE WHEN x < 0 THEN floor(CAST(x AS DOUBLE) / 2) * 2 ELSE ceil(CAST(x AS DOUBLE) / 2) * 2 END;
CREATE MACRO constant_or_null(x, y) AS CASE WHEN y IS NOT NULL THEN x END;

-- Conditions.
CREATE MACRO "coalesce both"(x, y) AS coalesce(x, y);
CREATE MACRO if(c, x, y) AS CASE WHEN c THEN x ELSE y END;
CREATE MACRO iff(c, x, y) AS CASE WHEN c THEN x ELSE y END;

-- Lists and structs.
CREATE MACRO struct_extract(s, n) AS get_field(s, n);
CREATE MACRO list_reverse_sort(l) AS array_sort(l, 'DESC', 'NULLS LAST');
CREATE MACRO list_reverse_sort(l, n) AS array_sort(l, 'DESC', n);
CREATE MACRO array_reverse_sort(l, n) AS array_sort(l, 'DESC', n);
CREATE MACRO "intersected list"(a, b) AS array_intersect(array_compact(a), b);
CREATE MACRO list_negative_dot_product(a, b) AS -inner_product(a, b);
CREATE MACRO list_negative_inner_product(a, b) AS -inner_product(a, b);
CREATE MACRO array_negative_dot_product(a, b) AS -inner_product(a, b);
CREATE MACRO array_negative_inner_product(a, b) AS -inner_product(a, b);
CREATE MACRO generate_subscripts(l, d) AS unnest(generate_series(1, CAST(array_length(l, d) AS BIGINT)));
CREATE MACRO list_min(l) AS array_min(l);
CREATE MACRO list_unique(l) AS array_length(array_distinct(array_compact(l)));
CREATE MACRO array_zip(a, b) AS arrays_zip(a, b);
CREATE MACRO array_unique(l) AS array_length(array_distinct(array_compact(l)));
CREATE MACRO array_reverse_sort(l) AS array_sort(l, 'DESC', 'NULLS LAST');
CREATE MACRO list_select(l, k) AS array_transform(k, i -> array_element(l, i));
CREATE MACRO array_select(l, k) AS array_transform(k, i -> array_element(l, i));
CREATE MACRO array_where(l, m) AS list_filter(l, (x, i) -> array_element(m, i));
CREATE MACRO list_where(l, m) AS list_filter(l, (x, i) -> array_element(m, i));
CREATE MACRO "sorted list"(l) AS array_sort(l, 'ASC', 'NULLS LAST');
CREATE MACRO "sorted list"(l, o) AS array_sort(l, o, 'NULLS LAST');
CREATE MACRO "distinct list"(l) AS array_distinct(array_compact(l));
CREATE MACRO list_string_agg(l) AS CASE WHEN array_length(array_compact(l)) > 0 THEN array_to_string(l, ',') END;
CREATE MACRO list_string_agg(l, t) AS CASE WHEN array_length(array_compact(l)) > 0 THEN array_to_string(l, t) END;
CREATE MACRO list_dot_product(a, b) AS inner_product(a, b);
CREATE MACRO list_inner_product(a, b) AS inner_product(a, b);
CREATE MACRO array_dot_product(a, b) AS inner_product(a, b);
CREATE MACRO array_inner_product(a, b) AS inner_product(a, b);
CREATE MACRO list_cosine_distance(a, b) AS cosine_distance(a, b);
CREATE MACRO array_cosine_distance(a, b) AS cosine_distance(a, b);
CREATE MACRO list_cosine_similarity(a, b) AS 1 - cosine_distance(a, b);
CREATE MACRO array_cosine_similarity(a, b) AS 1 - cosine_distance(a, b);
CREATE MACRO map_contains(m, k) AS array_has(map_keys(m), k);
CREATE MACRO map_contains_entry(m, k, x) AS coalesce(array_element(map_extract(m, k), 1) = x, FALSE);
CREATE MACRO map_contains_value(m, x) AS array_has(map_values(m), x);
CREATE MACRO map_extract_value(m, k) AS array_element(map_extract(m, k), 1);

-- Aggregates.
CREATE MACRO weighted_avg(x, w) AS sum(CAST(x AS DOUBLE) * w) / nullif(sum(CASE WHEN x IS NOT NULL THEN CAST(w AS DOUBLE) END), 0);
CREATE MACRO wavg(x, w) AS sum(CAST(x AS DOUBLE) * w) / nullif(sum(CASE WHEN x IS NOT NULL THEN CAST(w AS DOUBLE) END), 0);
CREATE MACRO favg(x) AS avg(CAST(x AS DOUBLE));
CREATE MACRO mad(x) AS list_mad(array_agg(CAST(x AS DOUBLE)));
CREATE MACRO reservoir_quantile(x, q) AS quantile_disc(x, q);
CREATE MACRO arg_min_null(x, y) AS first_value(x ORDER BY y ASC) FILTER (WHERE y IS NOT NULL);
CREATE MACRO arg_max_null(x, y) AS first_value(x ORDER BY y DESC) FILTER (WHERE y IS NOT NULL);
CREATE MACRO sum_no_overflow(x) AS sum(x);
CREATE MACRO sem(x) AS stddev_pop(x) / sqrt(count(x));
CREATE MACRO "max n"(x, n) AS array_slice(array_agg(x ORDER BY x DESC) FILTER (WHERE x IS NOT NULL), 1, n);
CREATE MACRO "min n"(x, n) AS array_slice(array_agg(x ORDER BY x ASC) FILTER (WHERE x IS NOT NULL), 1, n);
CREATE MACRO list(x) AS array_agg(x);
CREATE MACRO first(x) AS first_value(x);
CREATE MACRO last(x) AS last_value(x);
CREATE MACRO arbitrary(x) AS first_value(x);
CREATE MACRO count_if(c) AS sum(CAST(CAST(c AS BOOLEAN) AS BIGINT));
CREATE MACRO countif(c) AS sum(CAST(CAST(c AS BOOLEAN) AS BIGINT));
CREATE MACRO count_star() AS count(*);
CREATE MACRO every(c) AS bool_and(c);
CREATE MACRO variance(x) AS var_samp(x);
CREATE MACRO fsum(x) AS sum(x);
CREATE MACRO kahan_sum(x) AS sum(x);
CREATE MACRO sumkahan(x) AS sum(x);
CREATE MACRO geomean(x) AS exp(avg(ln(x)));
CREATE MACRO geometric_mean(x) AS exp(avg(ln(x)));
CREATE MACRO skewness(x) AS
    CASE WHEN count(x) > 2 THEN
        sqrt(CAST(count(x) AS DOUBLE) * (count(x) - 1)) / (count(x) - 2)
        * (sum(CAST(x AS DOUBLE) * CAST(x AS DOUBLE) * CAST(x AS DOUBLE)) / count(x)
           - 3 * sum(CAST(x AS DOUBLE) * CAST(x AS DOUBLE)) / count(x) * avg(CAST(x AS DOUBLE)) + 2 * power(avg(CAST(x AS DOUBLE)), 3))
        / power(var_pop(CAST(x AS DOUBLE)), 1.5) END;
CREATE MACRO kurtosis_pop(x) AS
    CASE WHEN count(x) > 1 THEN
        (sum(CAST(x AS DOUBLE) * CAST(x AS DOUBLE) * CAST(x AS DOUBLE) * CAST(x AS DOUBLE)) / count(x) - 4 * sum(CAST(x AS DOUBLE) * CAST(x AS DOUBLE) * CAST(x AS DOUBLE)) / count(x) * avg(CAST(x AS DOUBLE))
         + 6 * sum(CAST(x AS DOUBLE) * CAST(x AS DOUBLE)) / count(x) * power(avg(CAST(x AS DOUBLE)), 2) - 3 * power(avg(CAST(x AS DOUBLE)), 4))
        / power(var_pop(CAST(x AS DOUBLE)), 2) - 3 END;
CREATE MACRO kurtosis(x) AS
    CASE WHEN count(x) > 3 THEN
        (CAST(count(x) AS DOUBLE) - 1) / ((CAST(count(x) AS DOUBLE) - 2) * (count(x) - 3))
        * ((count(x) + 1)
           * (sum(CAST(x AS DOUBLE) * CAST(x AS DOUBLE) * CAST(x AS DOUBLE) * CAST(x AS DOUBLE)) / count(x) - 4 * sum(CAST(x AS DOUBLE) * CAST(x AS DOUBLE) * CAST(x AS DOUBLE)) / count(x) * avg(CAST(x AS DOUBLE))
              + 6 * sum(CAST(x AS DOUBLE) * CAST(x AS DOUBLE)) / count(x) * power(avg(CAST(x AS DOUBLE)), 2) - 3 * power(avg(CAST(x AS DOUBLE)), 4))
           / power(var_pop(CAST(x AS DOUBLE)), 2) - 3 * (count(x) - 1)) END;
CREATE MACRO string_agg(s) AS string_agg(s, ',');
CREATE MACRO group_concat(s) AS string_agg(s, ',');
CREATE MACRO group_concat(s, t) AS string_agg(s, t);
CREATE MACRO listagg(s) AS string_agg(s, ',');
CREATE MACRO listagg(s, t) AS string_agg(s, t);
CREATE MACRO approx_count_distinct(x) AS approx_distinct(x);
CREATE MACRO approx_quantile(x, q) AS approx_percentile_cont(x, q);
CREATE MACRO arg_min(x, y) AS first_value(x ORDER BY y ASC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL);
CREATE MACRO argmin(x, y) AS first_value(x ORDER BY y ASC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL);
CREATE MACRO min_by(x, y) AS first_value(x ORDER BY y ASC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL);
CREATE MACRO arg_max(x, y) AS first_value(x ORDER BY y DESC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL);
CREATE MACRO argmax(x, y) AS first_value(x ORDER BY y DESC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL);
CREATE MACRO max_by(x, y) AS first_value(x ORDER BY y DESC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL);
CREATE MACRO arg_min(x, y, n) AS array_slice(array_agg(x ORDER BY y ASC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL), 1, n);
CREATE MACRO argmin(x, y, n) AS array_slice(array_agg(x ORDER BY y ASC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL), 1, n);
CREATE MACRO min_by(x, y, n) AS array_slice(array_agg(x ORDER BY y ASC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL), 1, n);
CREATE MACRO arg_max(x, y, n) AS array_slice(array_agg(x ORDER BY y DESC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL), 1, n);
CREATE MACRO argmax(x, y, n) AS array_slice(array_agg(x ORDER BY y DESC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL), 1, n);
CREATE MACRO max_by(x, y, n) AS array_slice(array_agg(x ORDER BY y DESC) FILTER (WHERE x IS NOT NULL AND y IS NOT NULL), 1, n);

-- JSON.
CREATE MACRO json_group_array(x) AS json_array_of_list(array_agg(to_json(x)));
CREATE MACRO json_agg(x) AS json_array_of_list(array_agg(to_json(x)));
CREATE MACRO jsonb_agg(x) AS json_array_of_list(array_agg(to_json(x)));
CREATE MACRO json_group_object(k, x) AS json_object_of_lists(array_agg(k), array_agg(to_json(x)));
CREATE MACRO json_object_agg(k, x) AS json_object_of_lists(array_agg(k), array_agg(to_json(x)));
CREATE MACRO jsonb_object_agg(k, x) AS json_object_of_lists(array_agg(k), array_agg(to_json(x)));
CREATE MACRO json_array_elements(j) AS unnest(json_extract(j, '$[*]'));
CREATE MACRO jsonb_array_elements(j) AS unnest(json_extract(j, '$[*]'));
CREATE MACRO json_array_elements_text(j) AS unnest(json_extract_string(j, '$[*]'));
CREATE MACRO jsonb_array_elements_text(j) AS unnest(json_extract_string(j, '$[*]'));
CREATE MACRO json_object_keys(j) AS unnest(json_keys(j));
CREATE MACRO jsonb_object_keys(j) AS unnest(json_keys(j));
CREATE MACRO json_typeof(j) AS
    CASE json_type(j) WHEN 'VARCHAR' THEN 'string' WHEN 'BIGINT' THEN 'number' WHEN 'UBIGINT' THEN 'number' WHEN 'DOUBLE' THEN 'number'
         ELSE lower(json_type(j)) END;
CREATE MACRO jsonb_typeof(j) AS
    CASE json_type(j) WHEN 'VARCHAR' THEN 'string' WHEN 'BIGINT' THEN 'number' WHEN 'UBIGINT' THEN 'number' WHEN 'DOUBLE' THEN 'number'
         ELSE lower(json_type(j)) END;
CREATE MACRO parse_json(s) AS json(s);
CREATE MACRO try_parse_json(s) AS try_cast_to_json(s);
CREATE MACRO json_extract_scalar(j, p) AS json_extract_string(j, p);
CREATE MACRO json_unquote(j) AS json_extract_string(j, '$');
