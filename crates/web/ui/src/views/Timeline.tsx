export function TimelineView() { return <div />; }
