export function TreeView() { return <div />; }
