//! The files of a scan, however DataFusion dealt them out.

use std::collections::HashMap;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileGroup;

/// The files of all partitions of a scan, each once, by their paths. DataFusion cuts files into ranges of bytes for its
/// partitions, by their number and only where a plan gains by it: ranges that make up a file are the file.
pub fn whole_files(groups: &[FileGroup]) -> Vec<PartitionedFile> {
    let parts = || groups.iter().flat_map(FileGroup::iter);
    // Before files are cut, and where folders have no values, there are only paths to sort by.
    if parts().all(|file| file.range.is_none() && file.partition_values.is_empty()) {
        let mut files: Vec<_> = parts().cloned().collect();
        files.sort_by(|a, b| a.object_meta.location.as_ref().cmp(b.object_meta.location.as_ref()));
        return files;
    }
    let mut files: HashMap<(String, String), Vec<PartitionedFile>> = HashMap::new();
    for file in parts() {
        let key = (file.object_meta.location.to_string(), format!("{:?}", file.partition_values));
        files.entry(key).or_default().push(file.clone());
    }
    let mut whole: Vec<_> = files
        .into_iter()
        .flat_map(|(key, parts)| joined(parts).into_iter().map(move |file| (key.clone(), file)))
        .collect();
    whole.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| start(x).cmp(&start(y))));
    whole.into_iter().map(|(_, file)| file).collect()
}

fn start(file: &PartitionedFile) -> i64 {
    file.range.as_ref().map_or(0, |range| range.start)
}

/// The ranges of one file, joined where they meet.
fn joined(mut parts: Vec<PartitionedFile>) -> Vec<PartitionedFile> {
    parts.sort_by_key(start);
    let mut files: Vec<PartitionedFile> = Vec::new();
    for part in parts {
        let last = files.last_mut().and_then(|file| file.range.as_mut());
        match (last, &part.range) {
            (Some(last), Some(range)) if last.end == range.start => last.end = range.end,
            _ => files.push(part),
        }
    }
    for file in &mut files {
        let size = file.object_meta.size;
        if file.range.as_ref().is_some_and(|range| range.start == 0 && u64::try_from(range.end) == Ok(size)) {
            file.range = None;
        }
    }
    files
}

/// What a table of files is called: by its name where they know it, else as its file is, or as the folder that has all of them.
pub(crate) fn name_of(files: &[PartitionedFile]) -> String {
    let (Some(first), Some(last)) = (files.first(), files.last()) else { return "empty".into() };
    if let Some(reference) = &first.table_reference {
        return reference.table().to_string();
    }
    let (first, last) = (&first.object_meta.location, &last.object_meta.location);
    let shared = first.parts().zip(last.parts()).take_while(|(first, last)| first == last);
    let folder = shared.last().map(|(folder, _)| folder.as_ref().to_string());
    let file = || first.filename().unwrap_or("file").to_string();
    if files.len() > 1 { folder.unwrap_or_else(file) } else { file() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(path: &str, size: u64, range: Option<(i64, i64)>) -> PartitionedFile {
        let file = PartitionedFile::new(path, size);
        match range {
            Some((start, end)) => file.with_range(start, end),
            None => file,
        }
    }

    #[test]
    fn ranges_of_a_file_are_the_file() {
        let groups = [
            FileGroup::new(vec![part("b", 100, Some((40, 100))), part("c", 7, None)]),
            FileGroup::new(vec![part("a", 10, Some((0, 10))), part("b", 100, Some((0, 40)))]),
            FileGroup::new(vec![part("d", 9, Some((0, 3))), part("d", 9, Some((5, 9))), part("e", 0, None)]),
        ];
        let whole: Vec<_> = whole_files(&groups)
            .iter()
            .map(|file| {
                let range = file.range.as_ref().map(|range| (range.start, range.end));
                (file.object_meta.location.to_string(), range)
            })
            .collect();
        let expected =
            [("a", None), ("b", None), ("c", None), ("d", Some((0, 3))), ("d", Some((5, 9))), ("e", None)];
        assert_eq!(whole, expected.map(|(path, range)| (path.to_string(), range)));
    }

    #[test]
    fn a_file_that_is_read_twice_stays_twice() {
        let groups = [FileGroup::new(vec![part("a", 10, None), part("a", 10, None)])];
        assert_eq!(whole_files(&groups).len(), 2);
    }

    #[test]
    fn files_are_called_as_they_are_and_several_as_their_folder() {
        let files = |paths: &[&str]| {
            name_of(&paths.iter().map(|path| PartitionedFile::new(*path, 1)).collect::<Vec<_>>())
        };
        assert_eq!(files(&[]), "empty");
        assert_eq!(files(&["data/orders.parquet"]), "orders.parquet");
        assert_eq!(files(&["data/orders/1.parquet", "data/orders/2.parquet"]), "orders");
        assert_eq!(files(&["data/orders/year=1/1.parquet", "data/orders/year=2/1.parquet"]), "orders");
        assert_eq!(files(&["1.parquet", "2.parquet"]), "1.parquet");
    }
}
